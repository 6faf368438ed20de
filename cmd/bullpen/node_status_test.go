package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func someReport(now time.Time) node.Report {
	return node.Report{
		Node: "mac-1", Sandbox: "tart", At: now.Add(-time.Minute), Registered: true, LeaseRenewed: now.Add(-3 * time.Second),
		Conditions: []node.ReportCondition{{Type: "GUISession", Status: "False", Reason: "NoSession", Message: "nobody is logged in", Since: now.Add(-time.Hour)}},
		Resources:  []node.ReportResource{{Name: "bullpen.dev/macos-vm", Capacity: "2", Allocatable: "0"}},
		Pods: []node.ReportPod{{
			Namespace: "ci", Name: "mac-abc", UID: "u", Phase: "Pending",
			Containers: []node.ReportContainer{{Name: "agent", State: "ended", Detail: "code 0\x1b[2J\tx"}, {Name: "runner", State: "waiting", Detail: "no GUI session"}},
			WaitsFor:   []string{"start/runner, again at 2026-01-01T00:00:00Z: no GUI session"},
		}},
	}
}

func TestNodeStatus_SaysWhatPeopleOnTheHostAskFor(t *testing.T) {
	now := time.Unix(1e9, 0)
	var out bytes.Buffer
	require.NoError(t, printReport(&out, someReport(now), true, now))
	for _, want := range []string{
		"Node mac-1, sandbox tart: the agent is running, lease renewed 3s ago", "nobody is logged in", "1h0m0s", "bullpen.dev/macos-vm   2          0",
		"ci/mac-abc", "code 0 [2J x", "ci/mac-abc is waiting: start/runner, again at",
	} {
		require.Contains(t, out.String(), want)
	}
	out.Reset()
	require.NoError(t, printReport(&out, someReport(now), false, now))
	require.Contains(t, out.String(), "NO AGENT IS RUNNING; last status 1m0s ago")

	out.Reset()
	require.NoError(t, printReportJSON(&out, someReport(now), true))
	var back map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, true, back["running"])
	require.Equal(t, "mac-1", back["node"])
}

func TestNodeStatus_BadInputSaysWhatToDo(t *testing.T) {
	for want, args := range map[string][]string{
		"no node agent has used this state directory": {"--state-dir", t.TempDir()},
		"must be table or json":                       {"--state-dir", t.TempDir(), "-o", "yaml"},
		"state-dir":                                   {},
	} {
		cmd := newNodeStatusCommand()
		cmd.SetArgs(args)
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), want)
	}
}

func TestNodeMetrics_AreServedWhereTold(t *testing.T) {
	agent, err := node.New(node.Options{
		Name: "mac-1", Config: &rest.Config{Host: "http://127.0.0.1:1"}, Sandbox: synthetic.New(synthetic.NewMachine(nil)), SandboxName: "synthetic", StateDir: t.TempDir(),
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("2")},
	})
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	_, err = serveNodeMetrics(t.Context(), address, agent)
	require.ErrorContains(t, err, "--metrics-listen "+address)
	require.NoError(t, free.Close())
	stop, err := serveNodeMetrics(t.Context(), address, agent)
	require.NoError(t, err)
	response, err := await.HTTP.Get("http://" + address + "/metrics")
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	require.Contains(t, string(body), `bullpen_node_pods{phase="Running"} 0`)
	stop()
	_, err = await.HTTP.Get("http://" + address + "/metrics")
	require.Error(t, err)
	stop, err = serveNodeMetrics(t.Context(), "", agent)
	require.NoError(t, err)
	stop()
}
