package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/bullpen-ci/bullpen/internal/machost/steps"
	"github.com/bullpen-ci/bullpen/internal/node/identity"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestNodeFlags(t *testing.T) {
	labels, err := parseLabels([]string{"a=b", "c/d=e=f"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b", "c/d": "e=f"}, labels)
	taints, err := parseTaints([]string{"k=v:NoSchedule", "k:NoExecute"})
	require.NoError(t, err)
	require.Equal(t, []corev1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "k", Effect: "NoExecute"}}, taints)
	list, err := nodeFlags{cpu: "7500m", pods: 3}.capacity(t.TempDir())
	require.NoError(t, err)
	require.Equal(t, int64(7500), list.Cpu().MilliValue())
	require.Equal(t, int64(3), list.Pods().Value())
	require.Positive(t, list.Memory().Value())
}

func TestNodeFlags_BadOnesSayWhatToWrite(t *testing.T) {
	_, err := parseLabels([]string{"a"})
	require.ErrorContains(t, err, "must be KEY=VALUE")
	for _, taint := range []string{"k", ":NoSchedule", "k=v:Never"} {
		_, err := parseTaints([]string{taint})
		require.ErrorContains(t, err, "must be KEY[=VALUE]:EFFECT", taint)
	}
	for want, f := range map[string]nodeFlags{
		"--cpu":               {pods: 1, cpu: "many"},
		"--memory":            {pods: 1, memory: "-1Gi"},
		"--ephemeral-storage": {pods: 1, disk: "0"},
		"--pods":              {},
	} {
		_, err := f.capacity(t.TempDir())
		require.ErrorContains(t, err, want)
	}
	_, err = nodeFlags{sandbox: "vm"}.openSandbox(t.TempDir(), nil)
	require.ErrorContains(t, err, "--sandbox must be process, synthetic or tart, got \"vm\"")
	for want, f := range map[string]tartFlags{
		"--tart":      {program: " ", launchctl: "true", slots: 1},
		"--launchctl": {program: "true", launchctl: " ", slots: 1},
		"--vm-slots":  {program: "true", launchctl: "true", slots: 3},
	} {
		_, err := f.open(t.TempDir(), nil)
		require.ErrorContains(t, err, want)
	}
}

// Another name would put the former node's certificate aside, and its agent could not return without a valid bootstrap token.
func TestNode_NODE3_AnotherNameIsRejectedBeforeACertificateIsRequested(t *testing.T) {
	dir, err := os.MkdirTemp("", "bullpen-node-") // t.TempDir's path may be one that the sandbox does not take
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := process.Cleanup(context.Background(), dir)
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(dir))
	})
	sb, err := process.New(process.Options{StateDir: dir})
	require.NoError(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "runs", UID: "runs"}, Spec: corev1.PodSpec{NodeName: "former-name"}}
	require.NoError(t, sb.Prepare(t.Context(), pod))
	require.NoError(t, sb.Start(t.Context(), pod, sandbox.Container{Name: "main", Command: []string{"sleep", "1000000"}}))
	processes, err := exec.CommandContext(await.Context(t), "ps", "-axww", "-o", "command=").Output()
	require.NoError(t, err)
	shims := slices.DeleteFunc(strings.SplitAfter(string(processes), "\n"), func(line string) bool { return !strings.Contains(line, dir) })
	require.Equal(t, 1, steps.Running(strings.Join(shims, ""), ""), "a host counts it: %q", shims)

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("request %s %s", r.Method, r.URL)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	bootstrap := clientcmdapi.NewConfig()
	bootstrap.Clusters["c"], bootstrap.Contexts["c"] = &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.Context{Cluster: "c"}
	bootstrap.CurrentContext = "c"
	f := nodeFlags{sandbox: sandboxProcess, name: "new-name", stateDir: dir, bootstrap: filepath.Join(dir, "bootstrap"), pods: 1, minDiskFree: "1"}
	require.NoError(t, clientcmd.WriteToFile(*bootstrap, f.bootstrap))
	require.ErrorContains(t, runNode(await.Context(t), f), "Start the node agent with --name former-name")
	require.NoDirExists(t, identity.Dir(dir))
}
