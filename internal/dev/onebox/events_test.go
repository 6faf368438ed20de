package onebox

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func whereOfTest() *Where {
	return &Where{
		StateDir: "/state", GitHub: "http://127.0.0.1:1", Admin: "http://127.0.0.1:2", Kubeconfig: "/state/kubeconfig", Kubectl: "/state/bin/kubectl",
		Logs: "/state/logs", Pools: []string{"linux", "mac"}, Labels: map[string][]string{"linux": {"self-hosted", "linux"}, "mac": {"macos"}}, StandIn: true,
	}
}

// The banner names what runs-on of each pool's jobs can name, and where the logs are.
func TestPrinter_BannerHasTheLabels(t *testing.T) {
	var out bytes.Buffer
	NewPrinter(&out, false).Report(Event{Kind: EventReady, Message: "Bullpen is running.", Where: whereOfTest()})
	require.Contains(t, out.String(), "linux, for jobs with runs-on: [self-hosted, linux]\n")
	require.Contains(t, out.String(), "mac, for jobs with runs-on: macos\n")
	require.Contains(t, out.String(), "/state/logs (one file per process)\n")
	require.Contains(t, out.String(), "http://127.0.0.1:2/ui/ (`bullpen console --state-dir /state` prints a login link)\n")
	require.Contains(t, whereOfTest().text("/state"), "(`bullpen console` prints a login link)\n")

	out.Reset()
	NewPrinter(&out, true).Report(Event{Kind: EventReady, Message: "Bullpen is running.", Where: whereOfTest()})
	var back Event
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, whereOfTest(), back.Where)
}

// The guide names the state directory where it is not the usual one, and offers a workflow only where the stand-in can run it.
func TestWhere_Guide(t *testing.T) {
	w := whereOfTest()
	usual := strings.Join(w.guide("/state"), "\n")
	require.Contains(t, usual, "  bullpen status ")
	require.NotContains(t, usual, "--state-dir")
	require.Regexp(t, `^Next, in another terminal:\n  bullpen run FILE +run a workflow file`, usual, "the first thing to type")
	elsewhere := strings.Join(w.guide("/other"), "\n")
	for _, command := range []string{"run", "status", "jobs", "why", "top"} {
		require.Contains(t, elsewhere, "bullpen "+command+" --state-dir /state")
	}
	require.Contains(t, elsewhere, "  bullpen config set-server here --state-dir /state && bullpen config use-server here", "or each command has the flag")
	w.StandIn = false
	require.NotContains(t, strings.Join(w.guide("/state"), "\n"), "bullpen run")
}

func TestShortKubectl(t *testing.T) {
	found := func(string) (string, error) { return "/usr/bin/kubectl", nil }
	missing := func(string) (string, error) { return "", errors.New("not there") }
	require.Equal(t, "kubectl", shortKubectl("/state/bin/kubectl", found))
	require.Equal(t, "/state/bin/kubectl", shortKubectl("/state/bin/kubectl", missing))
}
