package realnode

import (
	"os/exec"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// liveClaims are the pods that are still busy, by the ledger, of all that there ever were.
func (w *world) liveClaims() []string {
	store, err := ledger.Open(w.Context(), w.database, 2)
	require.NoError(w, err)
	defer store.Close()
	var live []string
	removed := w.witness.seen()
	require.NotEmpty(w, removed)
	for _, removal := range removed {
		claim, err := store.Claim(w.Context(), removal.UID)
		require.NoError(w, err)
		if claim.State.Live() {
			live = append(live, removal.Pod+" is "+string(claim.State))
		}
	}
	return live
}

// tell logs where things stand: jobs that have not succeeded, by GitHub's word, and what the pods are and say.
func (w *world) tell() {
	w.Helper()
	w.Logf("at the gate: %d; connections that broke there: %v", w.gate.count(), w.gate.lost())
	jobs, err := w.github.Admin.Jobs(w.Context(), 0, "")
	if err != nil {
		w.Logf("GitHub's jobs: %v", err)
	}
	for _, job := range jobs {
		if job.Conclusion == "success" {
			continue
		}
		said, _ := w.github.Admin.JobLog(w.Context(), job.ID) // there is none before it has ended
		w.Logf("job %s: %s %s %s, assigned %t to %q, started %v, ended %v\n%s", job.Name, job.Status, job.Conclusion, job.Reason, job.Assigned, job.RunnerName,
			job.StartedAt, job.CompletedAt, said)
	}
	for _, namespace := range []string{systemNamespace, runnersNamespace} {
		pods, err := w.kube.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			w.Logf("pods of %s: %v", namespace, err)
			continue
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			w.Logf("pod %s: %s, labels %v, deleted %v", pod.Name, pod.Status.Phase, pod.Labels, pod.DeletionTimestamp)
			for _, container := range append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
				lines := int64(shownLines)
				content, err := w.kube.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container.Name, TailLines: &lines}).DoRaw(w.Context())
				w.Logf("%s of it (%v):\n%s", container.Name, err, content)
			}
		}
	}
	events, err := w.kube.CoreV1().Events("").List(w.Context(), metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		w.Logf("events: %v", err)
		return
	}
	for i := range events.Items {
		e := &events.Items[i]
		w.Logf("%d × %s %s/%s: %s", e.Count, e.Reason, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Message)
	}
}

// shownLines are the last ones of a container's log that a failure shows.
const shownLines = 30

// requireVersion asks the binaries that run in the pods of servers and controllers which they are, once a rollout is over.
func (w *world) requireVersion(version string) {
	w.Helper()
	for _, part := range []string{"server", "controller"} {
		w.eventually("every "+part+" is "+version, func() bool {
			versions := w.running(part)
			for _, v := range versions {
				if v != version {
					return false
				}
			}
			return len(versions) == 2
		})
	}
}

// running are the versions that the containers of a part report: kubectl exec goes by way of the API server and the kubelet.
func (w *world) running(part string) []string {
	pods, err := w.kube.CoreV1().Pods(systemNamespace).List(w.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + part})
	require.NoError(w, err)
	var versions []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		output, err := exec.CommandContext(await.Context(w), w.cluster.Plane().Kubectl(), "--kubeconfig="+w.cluster.Plane().AdminKubeconfig(), "--namespace="+systemNamespace, "exec", pod.Name, "--",
			"/usr/local/bin/bullpen", "--version").CombinedOutput()
		if err != nil {
			w.Logf("asking %s for its version: %v: %s", pod.Name, err, output)
			continue // it has just ended
		}
		fields := strings.Fields(string(output))
		versions = append(versions, fields[len(fields)-1])
	}
	return versions
}
