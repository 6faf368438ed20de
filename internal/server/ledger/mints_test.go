package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// CLAIM-15: a stale answer that is recorded in the same statement as the claim's own is void, and an answer that cannot be recorded spoils
// only itself.
func TestRecordMints_CLAIM15_StaleAnswerInTheSameBatchIsVoid(t *testing.T) {
	ctx := t.Context()
	store, err := Open(ctx, postgrestest.NewDatabase(t, Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	pods, batch := queueJobs(t, store, 3)
	result, err := store.ClaimBatch(ctx, batch)
	require.NoError(t, err)
	require.Len(t, result.Claims, 3)

	now := time.Now()
	current := result.Claims[0].Generation
	next := dispatch.NextGeneration(current, now)
	took, err := store.TakeOver(ctx, pods[0], current, next, 0, now.Add(time.Minute), now.Add(time.Hour))
	require.NoError(t, err)
	require.True(t, took)

	outcomes, err := store.recordMints(ctx, []mintAnswer{
		{claimKey{pods[0], current}, 1, now}, {claimKey{pods[0], next}, 2, now}, {claimKey{pods[1], result.Claims[1].Generation}, 3, now},
	})
	require.NoError(t, err)
	require.Equal(t, []mintOutcome{{won: false}, {won: true}, {won: true}}, outcomes)

	_, err = store.pool.Exec(ctx, `ALTER TABLE runner_sessions ADD CHECK (pod_name <> 'pod-2')`)
	require.NoError(t, err)
	outcomes, err = store.recordMints(ctx, []mintAnswer{
		{claimKey{pods[2], result.Claims[2].Generation}, 4, now}, {claimKey{pods[1], result.Claims[1].Generation}, 3, now},
	})
	require.NoError(t, err)
	require.Error(t, outcomes[0].err)
	require.Equal(t, mintOutcome{won: true}, outcomes[1])
}

// queueJobs queues n jobs and returns n pods and a batch that claims a job for each.
func queueJobs(t *testing.T, store *Store, n int) ([]string, dispatch.Batch) {
	t.Helper()
	acme := dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}
	batch := dispatch.Batch{
		Pool: dispatch.Pool{
			Namespace: "runners", Name: "linux", Labels: []string{"linux"}, Platform: fleet.Linux,
			Shape: fleet.Shape{MilliCPU: 1000, MemoryMB: 1024},
		},
		LabelKeys: []string{dispatch.LabelKey([]string{"linux"})}, Excluded: []int64{}, Now: time.Now(), Lease: time.Minute,
		Reserve: func(_ dispatch.Account, want int) int { return want }, Return: func(int64, int) {},
	}
	var pods []string
	for i := range n {
		_, err := store.RecordJob(t.Context(), dispatch.Delivery{GUID: uuid.NewString(), Event: "workflow_job", At: time.Now()},
			dispatch.JobEvent{
				Kind: fleet.JobEventQueued, Account: acme, JobID: int64(i + 1), Repository: "acme/app", RunID: 1,
				Labels: []string{"linux"}, QueuedAt: time.Unix(int64(1_700_000_000+i), 0),
			})
		require.NoError(t, err)
		pods = append(pods, uuid.NewString())
		batch.Polls = append(batch.Polls, dispatch.Poll{Namespace: "runners", PodName: "pod-" + string(rune('0'+i)), PodUID: pods[i]})
	}
	return pods, batch
}

// Mints that ran out of time together are not tried one by one within the same time.
func TestRecordMints_WhatRanOutOfTimeIsNotTriedAgain(t *testing.T) {
	store, err := Open(t.Context(), postgrestest.NewDatabase(t, Migrate), 1)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	outcomes, err := store.recordMints(ctx, make([]mintAnswer, 2))
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, outcomes)
}
