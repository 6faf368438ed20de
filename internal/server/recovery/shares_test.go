package recovery_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

// tenants has GitHub installed for three accounts.
func tenants(t *testing.T, options ...option) *world {
	t.Helper()
	w := openWorld(t)
	w.others = []standin.Installation{
		{ID: 102, Account: "globex", Repositories: []string{"app"}}, {ID: 103, Account: "initech", Repositories: []string{"app"}},
	}
	w.start(options...)
	w.eventually("the installations are known", func() bool { return w.installed.Load() == 3 })
	return w
}

// leaks adds a pod that shows work for the account and has no claim. Pods are checked in the order of their places.
func (w *world) leaks(account string, place uint32) recovery.Pod {
	return w.pod(stamped, func(p *recovery.Pod) {
		p.OwnerLabel, p.UID = account, fmt.Sprintf("%08x-0000-4000-8000-000000000000", place)
	})
}

func (w *world) retired(pod recovery.Pod) bool { return w.claim(pod).State == fleet.ClaimRetired }

// TEN-11, RECV-6: what is wrong with one account uses up its own limit. Another account's pod is handled in the same pass.
func TestPass_TEN11_RECV6_AnAccountUsesUpItsOwnLimit(t *testing.T) {
	w := tenants(t)
	for place := range uint32(60) {
		w.leaks("acme", place)
	}
	last := w.leaks("globex", 60)
	w.notice()
	w.advance(2 * patience)
	require.Equal(t, map[string]int{"orphaned_labelled_pod": 26}, w.pass())
	require.True(t, w.retired(last))
	require.Equal(t, map[string]int{"orphaned_labelled_pod": 25}, w.pass())
	require.Equal(t, map[string]int{"orphaned_labelled_pod": 10}, w.pass())
}

// RECV-5, RECV-6: where accounts together reach the limit of all in every pass, the next pass begins with what was left out: new failures
// delay nothing forever, wherever they stand.
func TestPass_RECV5_RECV6_TheNextPassBeginsWhereTheLimitWasReached(t *testing.T) {
	w := tenants(t, func(o *recovery.Options) {
		o.Caps, o.Workers = map[recovery.Kind]int{recovery.OrphanedLabelledPod: 2}, 1
	})
	place := uint32(1000)
	fail := func(pods int) {
		for range pods {
			w.leaks("acme", place-1)
			w.leaks("globex", place-2)
			place -= 2
		}
	}
	fail(4)
	last := w.leaks("initech", 2000)
	w.notice()
	w.advance(2 * patience)
	for range 3 {
		require.False(t, w.retired(last))
		fail(2) // as many as a pass handles, before all others
		require.Equal(t, map[string]int{"orphaned_labelled_pod": 4}, w.pass())
		w.advance(2 * patience)
	}
	require.True(t, w.retired(last), "at the third pass")
}
