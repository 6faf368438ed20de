package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Several changes of a pod ask for the note before the watch shows it: it is written once for all (P5), and again when it
// failed, or is still not shown after a while.
func TestNotes_TheOwnerIsNotedOnce(t *testing.T) {
	var n notes
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	require.True(t, n.begin("a", now))
	require.False(t, n.begin("a", now.Add(noteShows-1)))
	require.True(t, n.begin("b", now), "another pod")
	n.forget("a")
	require.True(t, n.begin("a", now))
	require.True(t, n.begin("a", now.Add(noteShows)))
}
