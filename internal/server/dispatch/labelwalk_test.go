package dispatch_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// Labels whose JSON is in another order than they are, or has escapes, commas or brackets.
var oddLabels = []string{"", "a", "A", "a b", "a,b", `a"`, `a","b`, "a]", "[", "<", "é", "z", "z-1", "z/1", "\u2028", "\ufffd", "-", ",", "!"}

// TEN-1: no label set that one of the pools serves is passed over, whatever lies between.
func TestLabelWalk_TEN1_FindsWhatThePoolsServe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.SliceOfN(rapid.SampledFrom(oddLabels), 0, 5)
		sets := rapid.SliceOfN(set, 0, 40).Draw(t, "label sets")
		var pools []dispatch.Pool
		for _, labels := range rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom(oddLabels), 1, 8), 1, 3).Draw(t, "pools") {
			pools = append(pools, dispatch.Pool{Labels: labels})
		}
		var keys, served []string
		for _, labels := range sets {
			keys = append(keys, dispatch.LabelKey(labels))
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
		for _, key := range keys {
			labels, _ := dispatch.LabelsOf(key)
			if slices.ContainsFunc(pools, func(p dispatch.Pool) bool { return p.Serves(labels) }) {
				served = append(served, key)
			}
		}
		found, err := dispatch.Walked(context.Background(), pools, rapid.Int32Range(1, 9).Draw(t, "at once"), func(start string, most int) []string {
			from, _ := slices.BinarySearch(keys, start)
			return keys[from:min(from+most, len(keys))]
		})
		require.NoError(t, err)
		require.Equal(t, served, found)
	})
}

// TEN-1: a pool with very many labels is no reason to read the label sets that no pool serves, although they begin with its labels.
func TestRouting_TEN1_AWidePoolReadsNoForeignLabelSets(t *testing.T) {
	h, c := newHarness(t), newClock()
	store, d := h.counting(c)
	h.asks(d, c)
	ledgertest.Exec(t, h.url, `WITH made AS (
			INSERT INTO label_sets SELECT '["linux","run-' || n || '"]', ARRAY['linux', 'run-' || n] FROM generate_series(1, 9000) n RETURNING label_key)
		INSERT INTO job_lanes (label_key, account_id, head_at) SELECT label_key, $1, now() FROM made`, acme.ID)
	h.record(job(fleet.JobEventQueued, 1, labelled("linux", "self-hosted", "x64")))
	h.cluster.PutPool(linuxPool("wide", "a", "b", "c", "d", "e", "f", "g", "h", "linux", "self-hosted", "x64"))
	before := store.sets.Load()
	d.PoolsChanged()
	c.pass(1)
	h.started(d, h.pod("wide"), 1)
	require.LessOrEqual(t, store.sets.Load()-before, int32(6), "of 9,000 foreign sets, 500 at a time")
}
