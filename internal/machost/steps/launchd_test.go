package steps

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// launchctl may fail for another reason than that there is no such job.
func TestJob_HOST5_AFailedQueryDoesNotMeanUnloaded(t *testing.T) {
	h, j := newScripted(t), job{NodeLabel, NodePlist, newSteppedClock()}
	h.fails(launchctl, 1, "Operation not permitted")
	loaded, _, err := j.state(t.Context(), h)
	require.ErrorContains(t, err, "exited with code 1: Operation not permitted")
	require.False(t, loaded)
	require.Error(t, j.load(t.Context(), h))
	require.NotContains(t, strings.Join(h.ran, "\n"), "bootstrap")
}
