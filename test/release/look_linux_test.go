package release

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/server/ledger"
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
		pods, err := w.cluster.Kube.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			w.Logf("pods of %s: %v", namespace, err)
			continue
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			w.Logf("pod %s: %s, labels %v, deleted %v", pod.Name, pod.Status.Phase, pod.Labels, pod.DeletionTimestamp)
			files, _ := filepath.Glob(filepath.Join(w.dir, "node", "*", string(pod.UID), "logs", "*.log")) // the pattern is well formed
			for _, file := range files {
				content, err := os.ReadFile(file)
				lines := strings.Split(strings.TrimSpace(string(content)), "\n")
				w.Logf("%s of it (%v):\n%s", filepath.Base(file), err, strings.Join(lines[max(0, len(lines)-shownLines):], "\n"))
			}
		}
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

// running are the versions that the containers of a part report.
func (w *world) running(part string) []string {
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(w, err)
	owner, err := os.ReadFile(filepath.Join(w.dir, "node", "owner"))
	require.NoError(w, err)
	mark := "BULLPEN_SANDBOX=" + strings.TrimSpace(string(owner)) + "/"
	var versions []string
	for _, file := range processes {
		process := filepath.Dir(file)
		if _, err := strconv.Atoi(filepath.Base(process)); err != nil {
			continue
		}
		command, err := os.ReadFile(file)
		environ, readable := os.ReadFile(filepath.Join(process, "environ"))
		if err != nil || readable != nil || !bytes.HasPrefix(command, []byte("/usr/local/bin/bullpen\x00"+part+"\x00")) || !bytes.Contains(environ, []byte(mark)) {
			continue
		}
		output, err := exec.CommandContext(w.Context(), filepath.Join(process, "exe"), "--version").Output()
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(output))
		versions = append(versions, fields[len(fields)-1])
	}
	return versions
}
