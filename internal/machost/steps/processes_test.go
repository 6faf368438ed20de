package steps

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// realPS is a host whose ps is a script, as long as it likes.
type realPS struct{ *scripted }

func newRealPS(t *testing.T, script string) realPS {
	h := newScripted(t)
	h.put("/bin/ps", "#!/bin/sh\n"+script, 0o755)
	h.fails(launchctl, noSuchService, "Could not find service")
	return realPS{h}
}

func (h realPS) Run(ctx context.Context, command machost.Command) (machost.Result, error) {
	if command.Path == "/bin/ps" {
		return h.Local.Run(ctx, command)
	}
	return h.scripted.Run(ctx, command)
}

var unloadedAgent = nodeAgent{job: job{NodeLabel, NodePlist, newSteppedClock()}}

// On a Mac with many processes a virtual machine may be far down in the list.
func TestMachines_NODE3_AreFoundInALongListOfProcesses(t *testing.T) {
	h := newRealPS(t, "i=0\nwhile [ $i -lt 2000 ]; do echo /usr/libexec/a-program "+strings.Repeat("--with-an-argument ", 20)+"; i=$((i+1)); done\necho tart run a\n")
	running, err := Machines(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, 1, running)
	require.ErrorIs(t, unloadedAgent.unloadIdle(t.Context(), h, agentIdentity{}), machost.ErrBusy)
}

func TestMachines_NODE3_AListThatIsCutIsNoCount(t *testing.T) {
	h := newRealPS(t, "head -c 17000000 /dev/zero\n")
	const why = "the list of processes is not complete"
	_, err := Machines(t.Context(), h)
	require.ErrorContains(t, err, why)
	require.ErrorContains(t, unloadedAgent.unloadIdle(t.Context(), h, agentIdentity{}), why)
}
