package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

var gpu = labelled("self-hosted", "Linux", "GPU")

// wants asks for one target.
func (h *harness) wants(d *dispatch.Dispatcher, target runnerapi.DemandTarget) runnerapi.TargetDemand {
	h.t.Helper()
	if target.Labels == nil {
		target.Labels = []string{"gpu", "large"}
	}
	target.Key, target.Most = "t", max(target.Most, 1)
	if target.Most == 1 {
		target.Most = 100
	}
	got, err := d.TargetDemand(h.t.Context(), []runnerapi.DemandTarget{target})
	require.NoError(h.t, err)
	require.Len(h.t, got, 1)
	require.Equal(h.t, "t", got[0].Key)
	return got[0]
}

func ids(jobs []runnerapi.DemandJob) []int64 {
	out := []int64{}
	for _, job := range jobs {
		out = append(out, job.ID)
	}
	return out
}

// 6.2, 6.6: a job that no pool's labels match is recorded with its labels and repository, named while it waits and while it
// runs, and never again after its end; it is not handed to any pool in between.
func TestTargetDemand_66_ThroughAJobsLife(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	org, repo := runnerapi.DemandTarget{Organization: "ACME"}, runnerapi.DemandTarget{Repository: "Acme/App"}
	require.Equal(t, runnerapi.TargetDemand{Key: "t", Sees: true, Queued: []runnerapi.DemandJob{}, Running: []runnerapi.DemandJob{}}, h.wants(d, org))

	h.record(job(fleet.JobEventQueued, 1, gpu))
	h.record(job(fleet.JobEventQueued, 1, gpu)) // another delivery of the same
	h.record(job(fleet.JobEventQueued, 2, gpu, in("acme/lib")))
	h.record(job(fleet.JobEventQueued, 3, labelled("gpu", "huge")))    // a label that the runners lack
	h.record(job(fleet.JobEventQueued, 4))                             // the pool's
	h.record(job(fleet.JobEventWaiting, 5, gpu))                       // no runner may take it yet
	h.record(job(fleet.JobEventQueued, 6, labelled("gpu", "windows"))) // no Linux runner's
	got := h.wants(d, org)
	require.Equal(t, []int64{1, 2}, ids(got.Queued))
	require.Empty(t, got.Running)
	require.Equal(t, "acme/app", got.Queued[0].Repository)
	require.Equal(t, int64(1_700_000_001), got.Queued[0].QueuedAt.Unix())
	require.WithinDuration(t, time.Now(), got.Queued[0].Since, time.Minute)
	require.Equal(t, []int64{1}, ids(h.wants(d, repo).Queued))
	got = h.wants(d, runnerapi.DemandTarget{Enterprise: "e", Repositories: []string{"acme/lib", "acme/lib", "elsewhere/x"}})
	require.Equal(t, []int64{2}, ids(got.Queued))
	require.False(t, got.Sees, "other repositories of the enterprise may go unreported")
	require.False(t, h.wants(d, runnerapi.DemandTarget{Enterprise: "e"}).Sees)

	pod := h.pod("linux")
	h.started(d, pod, 4) // the pool is handed its own job, and nothing else
	require.Equal(t, []fleet.JobState{fleet.JobQueued, fleet.JobQueued}, []fleet.JobState{h.jobState(1), h.jobState(2)})

	h.record(job(fleet.JobEventStarted, 1, gpu, by("ci-1a2b3c4d-x-y")))
	got = h.wants(d, repo)
	require.Empty(t, got.Queued)
	require.Equal(t, []int64{1}, ids(got.Running))
	require.Equal(t, "ci-1a2b3c4d-x-y", got.Running[0].RunnerName)
	require.Equal(t, []int64{1}, ids(h.wants(d, org).Running))
	require.Equal(t, []int64{2}, ids(h.wants(d, org).Queued))

	h.record(job(fleet.JobEventCompleted, 1, gpu, by("ci-1a2b3c4d-x-y")))
	h.record(job(fleet.JobEventQueued, 1, gpu)) // late
	got = h.wants(d, org)
	require.Empty(t, got.Running)
	require.Equal(t, []int64{2}, ids(got.Queued), "its end frees that job alone")
}

// A job that a pool serves is the pool's, even if others could take it; one that a deleted pool has left is not.
func TestTargetDemand_WhatAPoolServesIsThePools(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	org := runnerapi.DemandTarget{Organization: "acme", Labels: []string{"linux", "gpu"}, Seen: []int64{1, 2, 99}}
	h.record(job(fleet.JobEventQueued, 1, labelled("linux")))
	h.record(job(fleet.JobEventQueued, 2, labelled("self-hosted", "GPU")))
	got := h.wants(d, org)
	require.Equal(t, []int64{2}, ids(got.Queued))
	require.Equal(t, []int64{1}, got.Settled)
	pool := linuxPool("linux")
	pool.Terminating = true
	h.cluster.PutPool(pool)
	got = h.wants(d, org)
	require.Equal(t, []int64{1, 2}, ids(got.Queued))
	require.Empty(t, got.Settled)
	h.cluster.PutPool(linuxPool("a", "gpu", "self-hosted"))
	h.cluster.PutPool(linuxPool("b", "gpu", "self-hosted"))
	got = h.wants(d, org)
	require.Equal(t, []int64{1}, ids(got.Queued), "two pools that are in each other's way serve it, too")
	require.Equal(t, []int64{2}, got.Settled)
}

// 6.7: of jobs that were seen at GitHub, those that have ended are reported, also when only their tombstones are
// left.
func TestTargetDemand_67_SettledJobs(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	for id := int64(1); id <= 4; id++ {
		h.record(job(fleet.JobEventQueued, id, gpu))
	}
	h.record(job(fleet.JobEventCompleted, 1, gpu))
	h.record(job(fleet.JobEventCancelled, 2, gpu))
	expired, err := h.store.ExpireJobs(t.Context(), time.Now().Add(time.Hour), time.Now().Add(time.Hour), time.Now(), 1)
	require.NoError(t, err)
	require.Len(t, expired, 1, "RECV-7: given up like any other unknown one")
	target := runnerapi.DemandTarget{Repository: "acme/app", Seen: []int64{1, 2, 3, 4, 5}}
	got := h.wants(d, target)
	require.Equal(t, []int64{1, 2}, got.Settled)
	require.Len(t, got.Queued, 1, "RECV-7: it is not asked for any more")
	ledgertest.Exec(t, h.url, `UPDATE workflow_jobs SET conclusion = 'account_deleted' WHERE id = $1`, expired[0])
	require.Equal(t, []int64{1, 2}, h.wants(d, target).Settled)

	h.record(job(fleet.JobEventCompleted, 6, gpu))
	_, err = h.store.TargetJobs(t.Context(), nil, nil)
	require.NoError(t, err)
	seen, err := h.store.TargetJobs(t.Context(), nil, []int64{6, expired[0]})
	require.NoError(t, err)
	require.Len(t, seen.Seen, 2)
}

// Jobs that GitHub does not report are unknown, and no statement is made about them.
func TestTargetDemand_SeesOnlyWhatGitHubTells(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	org, repo := runnerapi.DemandTarget{Organization: "acme"}, runnerapi.DemandTarget{Repository: "acme/app"}
	h.record(job(fleet.JobEventQueued, 1, gpu))
	require.True(t, h.wants(d, repo).Sees)
	require.False(t, h.wants(d, runnerapi.DemandTarget{Organization: "other"}).Sees)
	require.False(t, h.wants(d, runnerapi.DemandTarget{Repository: "other/app"}).Sees)
	installation := func(action string, repositories ...string) {
		t.Helper()
		_, err := h.store.RecordInstallation(t.Context(), h.delivery("installation"), dispatch.Installation{Action: action, Account: acme, Repositories: repositories})
		require.NoError(t, err)
	}
	installation(dispatch.RepositoriesRemoved, "acme/app")
	require.False(t, h.wants(d, repo).Sees)
	require.Empty(t, h.wants(d, repo).Queued)
	require.True(t, h.wants(d, org).Sees)
	require.Empty(t, h.wants(d, org).Queued, "its end will not be reported")
	installation(dispatch.RepositoriesAdded, "acme/app")
	require.Equal(t, []int64{1}, ids(h.wants(d, repo).Queued))
	require.Equal(t, []int64{1}, ids(h.wants(d, org).Queued))
	installation("suspend")
	require.False(t, h.wants(d, org).Sees)
	require.Empty(t, h.wants(d, org).Queued)
	installation("unsuspend")
	require.True(t, h.wants(d, org).Sees)
	installation("deleted")
	require.False(t, h.wants(d, org).Sees)
}

// The answer is bounded, and says so: of each target, oldest first, and of all.
func TestTargetDemand_IsBounded(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	for id := int64(1); id <= 5; id++ {
		h.record(job(fleet.JobEventQueued, id, gpu))
		h.record(job(fleet.JobEventStarted, 10+id, gpu, by("x")))
	}
	got := h.wants(d, runnerapi.DemandTarget{Organization: "acme", Most: 5})
	require.False(t, got.More)
	require.Len(t, got.Queued, 5)
	got = h.wants(d, runnerapi.DemandTarget{Organization: "acme", Most: 3})
	require.True(t, got.More)
	require.Equal(t, []int64{1, 2, 3}, ids(got.Queued))
	require.Equal(t, []int64{11, 12, 13}, ids(got.Running))

	// Jobs of other runners with the same labels may run for any time: they hide no job.
	for id := int64(1); id <= 5; id++ {
		h.record(job(fleet.JobEventCompleted, id, gpu))
	}
	got = h.wants(d, runnerapi.DemandTarget{Organization: "acme", Most: 3})
	require.Len(t, got.Running, 3)
	require.False(t, got.More, "POOL-8 is about those that wait")

	big := &manyJobs{Store: h.store}
	d = h.replica(func(o *dispatch.Options) { o.Store = big })
	targets := make([]runnerapi.DemandTarget, 20)
	for i := range targets {
		targets[i] = runnerapi.DemandTarget{Key: fmt.Sprint(i), Organization: "acme", Labels: []string{"gpu"}, Most: 1000}
	}
	all, err := d.TargetDemand(t.Context(), targets)
	require.NoError(t, err)
	total := 0
	for i, target := range all {
		require.Equal(t, i != 0, target.More, "one with few jobs loses none to those with many")
		total += len(target.Queued) + len(target.Running)
	}
	require.Len(t, all[0].Queued, 10)
	require.LessOrEqual(t, total, runnerapi.MostDemandAnswer)
	require.Greater(t, total, runnerapi.MostDemandAnswer*9/10)
}

// manyJobs finds ten jobs of the first scope and a thousand of each other.
type manyJobs struct{ dispatch.Store }

func (manyJobs) TargetJobs(_ context.Context, scopes []dispatch.DemandScope, _ []int64) (dispatch.TargetJobs, error) {
	out := dispatch.TargetJobs{Sees: make([]bool, len(scopes))}
	for i := range scopes {
		n := 1000
		if i == 0 {
			n = 10
		}
		for id := range n {
			out.Jobs = append(out.Jobs, dispatch.TargetJob{Scope: i, Job: runnerapi.DemandJob{ID: int64(id)}})
		}
	}
	return out, nil
}

// POOL-8, CLAIM-17: there is an answer of all targets, or none.
func TestTargetDemand_POOL8_WholeOrNotAtAll(t *testing.T) {
	h, c := newHarness(t), newClock()
	store, d := h.counting(c)
	broken := errors.New("the database went away")
	store.err = func(method string) error {
		if method == "label sets" {
			return broken
		}
		return nil
	}
	target := []runnerapi.DemandTarget{{Key: "t", Organization: "acme", Labels: []string{"gpu"}, Most: 1}}
	got, err := d.TargetDemand(t.Context(), target)
	require.ErrorIs(t, err, broken)
	require.Nil(t, got)
	store.err = func(string) error { return nil }
	_, err = d.TargetDemand(t.Context(), target)
	require.NoError(t, err)
	h.store.Close()
	got, err = d.TargetDemand(t.Context(), target)
	require.Error(t, err)
	require.Nil(t, got)
}

// TEN-1: label sets that a stranger's workflows make up hide none of a target's jobs, and are not read for it.
func TestTargetDemand_TEN1_StrangersLabelSetsHideNothing(t *testing.T) {
	h := newHarness(t)
	labels := []string{"gpu", "z"}
	for i := range 9 {
		labels = append(labels, fmt.Sprintf("a%d", i))
	}
	h.record(job(fleet.JobEventQueued, 1, labelled("self-hosted", "z")))
	ledgertest.Exec(t, h.url, `INSERT INTO accounts SELECT 77, 'stranger', 'Organization', 77, false, now(), now()`)
	for subset := 1; subset < 1<<9; subset++ {
		set := []string{"gpu", "self-hosted"}
		for i := range 9 {
			if subset&(1<<i) != 0 {
				set = append(set, fmt.Sprintf("a%d", i))
			}
		}
		key := dispatch.LabelKey(set)
		ledgertest.Exec(t, h.url, `WITH made AS (INSERT INTO label_sets VALUES ($1, $2))
			INSERT INTO job_lanes (label_key, account_id, head_at) VALUES ($1, 77, now())`, key, set)
	}
	store := &noLabelSets{Store: h.store, t: t}
	d := h.replica(func(o *dispatch.Options) { o.Store = store })
	got := h.wants(d, runnerapi.DemandTarget{Organization: "acme", Labels: labels, Seen: []int64{1}})
	require.Equal(t, []int64{1}, ids(got.Queued))
	require.False(t, got.More, "all of the account's own label sets were asked for")
	require.Empty(t, got.Settled)
}

// noLabelSets reads no label sets of all accounts.
type noLabelSets struct {
	dispatch.Store
	t *testing.T
}

func (s noLabelSets) LabelSetsFrom(ctx context.Context, start string, most int32) ([]string, error) {
	s.t.Error("the label sets of all accounts were read")
	return s.Store.LabelSetsFrom(ctx, start, most)
}
