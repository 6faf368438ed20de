package ledger

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Users make up the labels of their jobs: a label for each run must not take memory for each run.
func TestRecordJob_RemembersNoMoreLabelSetsThanItsBound(t *testing.T) {
	t.Parallel()
	store, _ := retained(t)
	for i := range 3 * mostLabelSets {
		store.remember(fmt.Sprintf(`["run-%d"]`, i))
		require.LessOrEqual(t, len(store.labelSets), mostLabelSets)
	}
	require.True(t, store.remembers(fmt.Sprintf(`["run-%d"]`, 3*mostLabelSets-1)))

	first := queuedEvent(1)
	first.Labels = []string{"run-0"}
	for i := range 2 { // stored, forgotten, and stored once more
		first.JobID = int64(i + 1)
		rec, err := store.RecordJob(t.Context(), delivery(), first)
		require.NoError(t, err)
		require.True(t, rec.Fresh)
		require.True(t, store.remembers(`["run-0"]`))
		store.forget(`["run-0"]`)
	}
}
