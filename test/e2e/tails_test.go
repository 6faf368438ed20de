package e2e

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// lastWords kills an idle runner as the kernel would: another takes its place, and its last log lines can be read when its
// pod is gone.
func lastWords(t *testing.T, dir string, w *where) {
	idle := func() []adminapi.Runner {
		t.Helper()
		stdout, stderr, code := run(t, "runners", "--stage", "idle", "--pool", "default", "--state-dir", dir, "-o", "json")
		require.Zero(t, code, "%s", stderr)
		var runners []adminapi.Runner
		require.NoError(t, json.Unmarshal([]byte(stdout), &runners))
		return runners
	}
	var name string
	require.Eventually(t, func() bool {
		found := idle()
		if len(found) > 0 {
			name = found[0].Name
		}
		return name != ""
	}, patience, commandInterval)
	live, stderr, code := run(t, "runners", "logs", name, "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	uid, err := kubectl(t, w, w.Kubeconfig, "-n", "bullpen-runners", "get", "pod", name, "-o", "jsonpath={.metadata.uid}")
	require.NoError(t, err, uid)
	killed := 0
	for _, line := range processesOf(t, dir) {
		pid, args, _ := strings.Cut(line, ": ")
		if strings.Contains(args, strings.TrimSpace(uid)) && strings.Contains(args, "/bullpen-agent run ") {
			number, err := strconv.Atoi(pid)
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(number, syscall.SIGKILL))
			killed++
		}
	}
	require.Equal(t, 1, killed)
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(processesOf(t, dir), func(line string) bool { return strings.Contains(line, strings.TrimSpace(uid)) })
	}, patience, interval)
	require.Eventually(t, func() bool {
		stdout, stderr, code := run(t, "runners", "logs", name, "--state-dir", dir)
		return code == 0 && strings.Contains(stderr, name+" of pool default exited at ") && strings.Contains(stderr, "exit code 137") &&
			strings.TrimSpace(stdout) == strings.TrimSpace(live)
	}, patience, commandInterval)
	require.Eventually(t, func() bool { return len(idle()) > 0 }, patience, commandInterval, "another takes its place")
	refused(t, `no log of runner "nobody"`, "runners", "logs", "nobody", "--state-dir", dir)
}
