package hosts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// volatile is what changes without an apply: the model's own state, and what programs write while they run.
func volatile(path string) bool {
	switch path {
	case "/.devmac", "/usr/local/var/bullpen/log/node.log", "/usr/local/var/bullpen/lock", "/Users/ci/bullpen", "/private/tmp", "/private/var/log":
		return true
	}
	return false
}

// converged applies until there is nothing left to do, and says what the Mac is then.
func (h *host) converged() map[string]string {
	h.t.Helper()
	done := h.apply("-o", "json")
	require.Zero(h.t, done.state.ExitCode(), "%s\n%s", done.stdout, done.stderr)
	plan := h.apply("--plan")
	require.Zero(h.t, plan.state.ExitCode(), plan.stderr)
	require.Contains(h.t, plan.stdout, "nothing to do")
	require.NotContains(h.t, plan.stdout, "would change")
	return h.tree(volatile)
}

func TestApply_HOST1_TwiceChangesNothingTheSecondTime(t *testing.T) {
	h := newHost(t)
	first := h.apply("-o", "json")
	t.Log(first.stdout)
	before := h.converged()
	second := h.apply("-o", "json")
	require.Zero(t, second.state.ExitCode(), second.stderr)
	require.NotContains(t, second.stdout, `"Applied"`)
	require.Contains(t, second.stdout, `"Unchanged"`)
	require.Equal(t, before, h.tree(volatile))
}
