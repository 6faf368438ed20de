package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// A runner's last log lines are kept once; a pool whose runners all die leaves room for the others, and for those of the next hour.
func TestTails_AreKeptOnceAndOfFew(t *testing.T) {
	store, err := Open(t.Context(), postgrestest.NewDatabase(t, Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	keep := func(uid, pod, pool string, ended time.Time, change ...func(*fleet.Tail)) {
		t.Helper()
		tail := fleet.Tail{PodUID: uid, Namespace: "ns", Pod: pod, Pool: pool, EndedAt: ended, Reason: "OOMKilled", Text: "last words", Cut: true}
		for _, c := range change {
			c(&tail)
		}
		require.NoError(t, store.KeepTail(t.Context(), tail))
	}
	keep("u1", "a", "linux", at, func(l *fleet.Tail) { l.ExitCode = ptr.To[int32](137) })
	keep("u1", "a", "linux", at, func(l *fleet.Tail) { l.Text = "told again" })
	log, err := store.RunnerLog(t.Context(), "ns", "a")
	require.NoError(t, err)
	require.Equal(t, adminapi.RunnerLog{
		Namespace: "ns", Name: "a", Pool: "linux", EndedAt: at, ExitCode: ptr.To[int32](137), Reason: "OOMKilled", Tail: "last words", Cut: true,
	}, log)
	keep("u2", "a", "linux", at.Add(time.Minute), func(l *fleet.Tail) { l.Text = "of the next of that name" })
	log, err = store.RunnerLog(t.Context(), "ns", "a")
	require.NoError(t, err)
	require.Equal(t, "of the next of that name", log.Tail)
	require.Nil(t, log.ExitCode)

	for i := range mostTails {
		keep(fmt.Sprint("many", i), fmt.Sprint("many", i), "linux", at.Add(2*time.Minute))
	}
	kept := func(pod string) bool {
		t.Helper()
		_, err := store.RunnerLog(t.Context(), "ns", pod)
		if err != nil {
			require.ErrorIs(t, err, admin.ErrNotFound)
		}
		return err == nil
	}
	require.True(t, kept(fmt.Sprint("many", mostTails-3)))
	require.False(t, kept(fmt.Sprint("many", mostTails-2)), "two had been kept before")
	keep("other", "other", "macs", at.Add(2*time.Minute))
	require.True(t, kept("other"))
	keep("later", "later", "linux", at.Add(2*time.Hour))
	require.True(t, kept("later"))
	require.False(t, kept("no\x00pod"))
}
