package standin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A stand-in that starts again without its state, as after a kill -9 a moment too early, hands out no id twice:
// Bullpen's tombstones of the former ones would bar the new jobs forever.
func TestIDs_AreNeverHandedOutTwiceAcrossStarts(t *testing.T) {
	key, _, err := GenerateAppKey()
	require.NoError(t, err)
	now := time.Unix(1_800_000_000, 0)
	seen := map[int64]bool{}
	for range 3 {
		s, err := New(Options{URL: "http://127.0.0.1:1", AppID: 1, AppKey: key, Now: func() time.Time { return now }})
		require.NoError(t, err)
		for range 900 {
			id := s.freshIDLocked("job", 40_000_000_000)
			require.False(t, seen[id], "job %d came twice", id)
			seen[id] = true
		}
		require.Equal(t, int64(9_000_001), s.nextIDLocked("account", 9_000_000), "what is configured keeps its id")
		now = now.Add(time.Second)
	}
}
