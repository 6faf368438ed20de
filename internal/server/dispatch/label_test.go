package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The acknowledgement and the end of the poller follow each other before the watch shows the label: it is written once
// for both (P5), and again when it failed, or is still not shown after a while.
func TestStamps_CLAIM6_TheLabelIsWrittenOnce(t *testing.T) {
	var s stamps
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	require.True(t, s.begin("a", now))
	require.False(t, s.begin("a", now.Add(stampShows-1)))
	require.True(t, s.begin("b", now), "another pod")
	s.failed("a")
	require.True(t, s.begin("a", now))
	require.True(t, s.begin("a", now.Add(stampShows)))
}
