package realnode

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isolationJobs is how many jobs requireIsolation submits.
const isolationJobs = 1

// webhooksPort of a server is open to all: GitHub's webhooks are verified by their signature.
const webhooksPort = 8080

// askScript tries each destination, and says which of them accepted a connection. DNS is asked for a name, by UDP.
const askScript = `for at in %s; do
  if timeout 3 bash -c "exec 3<>/dev/tcp/${at%%:*}/${at##*:}" 2>/dev/null; then echo "reach $at open"; else echo "reach $at closed"; fi
done
if getent hosts github.outside.svc.cluster.local >/dev/null; then echo "reach dns open"; else echo "reach dns closed"; fi
`

// requireIsolation has a job try what the page on networks says of it (docs/guides/network.md), and a pod that no policy selects try the same, so
// that what is closed for the job is known to be open otherwise. The server's own policy closes all of its ports but that of webhooks to the
// other pod, too.
func (w *world) requireIsolation() {
	open, closed := w.destinations()
	all := slices.Concat(open, closed)
	script := fmt.Sprintf(askScript, strings.Join(all, " "))
	stranger := w.reached(w.runStranger(script))
	require.ElementsMatch(w, append(slices.Clone(open), "dns"), stranger, "what a pod without a policy reaches")

	indented := "          " + strings.ReplaceAll(strings.TrimSpace(script), "\n", "\n          ")
	w.submit("isolation.yaml", "name: isolation\non: [workflow_dispatch]\njobs:\n  isolation:\n    runs-on: bullpen\n    steps:\n      - run: |\n"+indented+"\n")
	w.awaitJobs("a job that tries what it may not reach", 0)
	jobs, err := w.github.Admin.Jobs(w.Context(), 0, "")
	require.NoError(w, err)
	for _, job := range jobs {
		if job.Name != "isolation" {
			continue
		}
		said, err := w.github.Admin.JobLog(w.Context(), job.ID)
		require.NoError(w, err)
		require.ElementsMatch(w, []string{open[0], "dns"}, w.reached(said), "what a job reaches\n%s", said)
		return
	}
	w.Fatal("the job is not listed")
}

// destinations are addresses that a pod without a policy reaches, GitHub first, and others that only their own clients reach: the API server, by
// its Service and by the machine's address, the kubelet, and every port of servers and controllers.
func (w *world) destinations() (open, closed []string) {
	open = []string{net.JoinHostPort(githubAt.String(), "80"), "10.111.0.1:443", "10.112.0.1:6443", "10.112.0.2:10250"}
	pods, err := w.kube.CoreV1().Pods(systemNamespace).List(w.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component in (server, controller)"})
	require.NoError(w, err)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				at := net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(port.ContainerPort))
				if port.ContainerPort == webhooksPort {
					open = append(open, at)
				} else {
					closed = append(closed, at)
				}
			}
		}
	}
	require.NotEmpty(w, closed)
	return open, closed
}

// runStranger runs a script in a pod of a namespace without policies, and returns what it says.
func (w *world) runStranger(script string) string {
	pod, err := w.kube.CoreV1().Pods(outside).Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "stranger"},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "main", Image: runnerRef, Command: []string{"/bin/bash", "-c", script},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	w.eventually("the stranger has tried", func() bool {
		now, err := w.kube.CoreV1().Pods(outside).Get(w.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.PodSucceeded
	})
	said, err := w.kube.CoreV1().Pods(outside).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(w.Context())
	require.NoError(w, err)
	return string(said)
}

// reached are the destinations that were open, of a script's output.
func (w *world) reached(said string) []string {
	var open []string
	tried := 0
	for line := range strings.SplitSeq(said, "\n") {
		_, result, found := strings.Cut(line, "reach ")
		if !found {
			continue
		}
		tried++
		if at, is := strings.CutSuffix(strings.TrimSpace(result), " open"); is {
			open = append(open, at)
		}
	}
	require.Positive(w, tried, said)
	return open
}
