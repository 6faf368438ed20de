package recovery_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// asked is a GitHub that says of runners what a test wants.
type asked struct {
	recovery.GitHub
	find func(ctx context.Context, name string) (fleet.Registration, error)
}

func (a *asked) FindRunner(ctx context.Context, _ int64, _ fleet.Scope, name string) (fleet.Registration, error) {
	return a.find(ctx, name)
}

func (a *asked) Job(context.Context, int64, fleet.Repository, int64) (github.WorkflowJob, error) {
	return github.WorkflowJob{}, fleet.ErrForbidden
}

func withAsked(into **asked) option {
	return func(o *recovery.Options) {
		*into = &asked{GitHub: o.GitHub}
		o.GitHub, o.Workers = *into, 1
	}
}

// RECV-5: a pass that the first subjects cut off repeatedly still reaches the last ones.
func TestPass_RECV5_WhatStandsLastIsReached(t *testing.T) {
	var gh *asked
	w := newWorld(t, withAsked(&gh))
	for range 3 {
		w.submit()
		w.served(w.pod())
	}
	w.submit()
	leftover := w.pod()
	w.served(leftover)
	ledgertest.Exec(t, w.url, `DELETE FROM runner_claims WHERE pod_uid = '`+leftover.UID+`'`)
	w.cluster.drop(leftover.UID)
	w.advance(patience + time.Second)
	names := map[string]bool{}
	open := func() int64 {
		return ledgertest.Int(t, w.url, `SELECT count(*) FROM runner_sessions WHERE ended_at IS NULL AND pod_uid = '`+leftover.UID+`'`)
	}
	require.EqualValues(t, 1, open())
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		gh.find = func(_ context.Context, name string) (fleet.Registration, error) {
			names[name] = true
			cancel() // its time is up
			return fleet.Registration{}, context.Canceled
		}
		_ = w.r.Pass(ctx)
		cancel()
	}
	require.Len(t, names, 4, "and that one's registration")
	require.Zero(t, open())
}

// RECV-5, RECV-6: what may be asked of GitHub in a pass is not used up by the same few every time.
func TestPass_RECV5_RECV6_AllAreAskedAboutInTurn(t *testing.T) {
	var gh *asked
	w := newWorld(t, withAsked(&gh), func(o *recovery.Options) { o.Requests = 2 })
	w.pod()
	for range 3 {
		w.submit()
		pod := w.pod()
		w.served(pod)
		w.cluster.drop(pod.UID)
	}
	names := map[string]bool{}
	gh.find = func(_ context.Context, name string) (fleet.Registration, error) {
		names[name] = true
		return fleet.Registration{Name: name, ID: 1, Busy: true}, nil // it is left as it is, for now
	}
	require.NoError(t, w.r.Pass(t.Context()))
	require.Empty(t, names)
	w.advance(patience + time.Second)
	for range 3 {
		require.NoError(t, w.r.Pass(t.Context()))
	}
	require.Len(t, names, 3)
}

// RECV-5: what GitHub cannot answer is asked about less and less often, and counts as doubtful until it is resolved.
func TestPass_RECV5_DoubtDoesNotUseUpTheQuestions(t *testing.T) {
	var gh *asked
	w := newWorld(t, withAsked(&gh))
	w.submit()
	pod := w.pod()
	w.served(pod)
	var times int
	gh.find = func(context.Context, string) (fleet.Registration, error) {
		times++
		return fleet.Registration{}, fleet.ErrForbidden
	}
	w.advance(patience + time.Second)
	for range 30 {
		require.NoError(t, w.r.Pass(t.Context()))
		require.EqualValues(t, 1, w.gauge("bullpen_recovery_unknown"))
		w.advance(time.Minute)
	}
	require.LessOrEqual(t, times, 9)
	require.GreaterOrEqual(t, times, 6)
	before := times
	require.NoError(t, w.r.CheckPod(t.Context(), pod.UID))
	require.Equal(t, before+1, times, "a replica with news of it asks at once")
	w.advance(3 * patience)
	require.Zero(t, w.gauge("bullpen_recovery_unknown"), "another replica has checked it since")
}

// A replica that has made no round yet begins anywhere in it.
func TestNew_RECV5_BeginsAtTheGivenPlace(t *testing.T) {
	for _, start := range []float64{0, 0.19, 0.2, 0.5, 0.999999999} {
		var gh *asked
		w := newWorld(t, withAsked(&gh), func(o *recovery.Options) { o.Start = start })
		w.submit()
		w.served(w.pod())
		w.advance(patience + time.Second)
		var times int
		gh.find = func(context.Context, string) (fleet.Registration, error) {
			times++
			return fleet.Registration{}, fleet.ErrForbidden
		}
		require.NoError(t, w.r.Pass(t.Context()))
		require.Equal(t, 1, times, "begun at %v", start)
	}
}

func (w *world) gauge(name string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	w.t.Fatalf("there is no metric %s", name)
	return 0
}
