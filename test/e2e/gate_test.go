package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

const twoSeconds = "on: push\njobs:\n  %:\n    runs-on: bullpen\n    steps:\n      - run: sleep 2\n"

// gated is the one idle runner, and everything that can be done in its name.
type gated struct {
	*testing.T
	dir string
	w   *where
	pod corev1.Pod
}

// idleRunner waits until exactly one runner is idle, and ready for work.
func idleRunner(t *testing.T, dir string, w *where) *gated {
	t.Helper()
	g := &gated{T: t, dir: dir, w: w}
	require.Eventually(t, func() bool {
		var idle []corev1.Pod
		all, err := pods(t, w, runnerpod.LabelRunner+"=true,!"+runnerpod.LabelOwner)
		require.NoError(t, err)
		for _, pod := range all {
			if podsigns.Jobless(&pod, podsigns.Container(&pod, runnerpod.ContainerRunner)) && pod.DeletionTimestamp == nil {
				idle = append(idle, pod)
			}
		}
		if len(idle) == 1 {
			g.pod = idle[0]
		}
		return len(idle) == 1
	}, patience, interval, "one idle runner")
	return g
}

func (g *gated) kubectl(args ...string) string {
	g.Helper()
	output, err := kubectl(g.T, g.w, g.w.Kubeconfig, append([]string{"-n", "bullpen-runners"}, args...)...)
	require.NoError(g, err, output)
	return output
}

// connect makes a connection to where runners ask for work, and asks something as the pod; an error if nothing is answered.
func (g *gated) connect(token string) (net.Conn, error) {
	g.Helper()
	conn, err := new(net.Dialer).DialContext(g.Context(), "tcp", strings.TrimPrefix(g.w.Dispatch, "http://"))
	require.NoError(g, err)
	g.Cleanup(func() { _ = conn.Close() })
	require.NoError(g, conn.SetDeadline(time.Now().Add(patience)))
	request, err := http.NewRequestWithContext(g.Context(), http.MethodGet, g.w.Dispatch, nil)
	require.NoError(g, err)
	request.Header.Set("Authorization", "Bearer "+token)
	if err := request.Write(conn); err != nil {
		return conn, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err == nil {
		err = response.Body.Close()
	}
	return conn, err
}

// refusals are how many of the pod's connections the gate has cut, and refused.
func (g *gated) refusals() (cut, refused int) {
	g.Helper()
	log, err := os.ReadFile(filepath.Join(g.dir, "logs", "gate.log"))
	require.NoError(g, err)
	for line := range bytes.Lines(log) {
		var entry struct {
			Pod string
			Cut bool
		}
		require.NoError(g, json.Unmarshal(line, &entry))
		switch {
		case entry.Pod != g.pod.Name:
		case entry.Cut:
			cut++
		default:
			refused++
		}
	}
	return cut, refused
}

// theLabelCutsTheRunnerOff runs a job beside a connection of its own pod that stays open.
func theLabelCutsTheRunnerOff(t *testing.T, dir string, w *where, up *running) {
	g := idleRunner(t, dir, w)
	token := g.kubectl("create", "token", g.pod.Spec.ServiceAccountName, "--audience", runnerapi.AudienceDispatch,
		"--bound-object-kind", "Pod", "--bound-object-name", g.pod.Name, "--bound-object-uid", string(g.pod.UID))
	open, err := g.connect(token)
	require.NoError(t, err, "an idle runner reaches the server")
	submit(t, dir, w, strings.Replace(twoSeconds, "%", "gated", 1))
	_, err = open.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET, "cut, and not closed by the server")
	require.Equal(t, "acme", g.kubectl("get", "pod", g.pod.Name, "-o", `jsonpath={.metadata.labels.bullpen\.dev/runner-pool-owner}`))
	_, err = g.connect(token)
	require.Error(t, err, "and no other is let through")
	up.await(t, "the end of the job whose runner was cut off", jobEnded("gated", "success"))
}

// aLabelBeforeTheAnswer is the control: the same label on the same pod, between its claim and its configuration, and the job never starts.
// The label is removed in the end, and the job completes.
func aLabelBeforeTheAnswer(t *testing.T, dir string, w *where, up *running) {
	g := idleRunner(t, dir, w)
	running := g.claims()
	post(t, dir, w, "/_standin/faults", []byte(`{"kind":"rest-latency","route":"generate-jitconfig","delay":"4s"}`))
	submit(t, dir, w, strings.Replace(twoSeconds, "%", "early", 1))
	require.Eventually(t, func() bool { return g.claims() == running+1 }, patience, commandInterval, "the claim")
	g.kubectl("label", "pod", g.pod.Name, runnerpod.LabelOwner+"=acme")
	require.Eventually(t, func() bool {
		cut, refused := g.refusals()
		return cut > 0 && refused >= 4 // it asks again after 250 ms, 500 ms, 1 s, 2 s: GitHub has answered by now
	}, patience, interval, "the poll is cut off, and its retries fail")
	up.mu.Lock()
	for _, e := range up.events {
		require.False(t, e.Job != nil && e.Job.Name == "early" && e.Job.Status != "queued", "it has started: %+v", e)
	}
	up.mu.Unlock()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.GitHub+"/_standin/faults", nil)
	require.NoError(t, err)
	ask(t, dir, request)
	g.kubectl("annotate", "pod", g.pod.Name, runnerpod.AnnotationAllowDeletion+"=the label came too early")
	g.kubectl("label", "pod", g.pod.Name, runnerpod.LabelOwner+"-")
	up.await(t, "the end of the job whose runner may ask again", jobEnded("early", "success"))
}

// claims are how many runners work for the account.
func (g *gated) claims() int64 {
	g.Helper()
	stdout, stderr, code := run(g.T, "accounts", "get", "acme", "--state-dir", g.dir, "-o", "json")
	require.Zero(g, code, "%s", stderr)
	var account adminapi.Account
	require.NoError(g, json.Unmarshal([]byte(stdout), &account))
	return account.Budgets[0].Usage.Jobs
}
