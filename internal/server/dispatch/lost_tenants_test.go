package dispatch_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
)

// listsOf answers in the place of GitHub's lists.
type listsOf func(ctx context.Context, queries []roster.Query) (map[string]roster.Sighting, error)

func (l listsOf) Look(ctx context.Context, queries []roster.Query) (map[string]roster.Sighting, error) {
	return l(ctx, queries)
}

// releasing reports that a claim was released.
type releasing struct {
	dispatch.Store
	once     sync.Once
	released chan struct{}
}

func (s *releasing) Release(ctx context.Context, podUID string, generation int64, proof string, now time.Time) (bool, error) {
	released, err := s.Store.Release(ctx, podUID, generation, proof, now)
	if released {
		s.once.Do(func() { close(s.released) })
	}
	return released, err
}

// hanging is a GitHub that removes no runner before that.
type hanging struct {
	*dispatchtest.GitHub
	until <-chan struct{}
}

func (g *hanging) RemoveRunner(ctx context.Context, installation int64, scope fleet.Scope, id int64) error {
	select {
	case <-g.until:
		return g.GitHub.RemoveRunner(ctx, installation, scope, id)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TEN-11: pods whose lists hang, and that GitHub does not respond for either, do not keep the claim of a pod that is proven idle.
func TestRetireLost_TEN11_AccountsThatHangKeepNoOthersClaims(t *testing.T) {
	h := newHarness(t)
	pods := make([]dispatch.Pod, 10)
	const last = 7 // in the order of the first question
	proven := &pods[last].UID
	store := &releasing{Store: h.store, released: make(chan struct{})}
	var left time.Duration
	d := h.replica(func(o *dispatch.Options) {
		o.Store, o.Forge, o.ExamineTimeout = store, &hanging{h.forge, store.released}, 10*time.Second
		o.Roster = listsOf(func(ctx context.Context, queries []roster.Query) (map[string]roster.Sighting, error) {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			out := map[string]roster.Sighting{}
			for _, q := range queries {
				out[q.UID] = roster.Sighting{Doubt: "its list is still being read"}
			}
			out[*proven] = roster.Sighting{Absent: true}
			return out, nil
		})
	})
	for i := range pods {
		h.queue(int64(i + 1))
		pods[i] = h.pod("linux")
		h.served(d, pods[i])
	}
	answers := h.lost(d, pods...)
	require.Equal(t, runnerapi.Granted, answers[last].Verdict)
	require.LessOrEqual(t, left, 7500*time.Millisecond, "a quarter of the time is left to what is done with the answer")
	require.Equal(t, dispatch.ProofRegistrationsGone, answers[last].Proof)
}
