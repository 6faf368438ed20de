package registration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// lister is a GitHub whose lists can be counted, held up and broken, each target's by itself.
type lister struct {
	Registrar // nothing else is called
	target    Target
	of        *listers
}

type listers struct {
	mu     sync.Mutex
	count  map[string]int
	fail   map[string]error
	runner map[string][]Registration
	hold   map[string]chan struct{}
}

func (l *listers) For(_ context.Context, _ Credentials, target Target) (Registrar, error) {
	return &lister{target: target, of: l}, nil
}

func (l *lister) List(ctx context.Context, yield func(Registration) bool) error {
	at := l.target.Organization
	l.of.mu.Lock()
	l.of.count[at]++
	err, runners, hold := l.of.fail[at], l.of.runner[at], l.of.hold[at]
	l.of.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, one := range runners {
		yield(one)
	}
	return err
}

func (l *listers) lists(at string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[at]
}

func (l *listers) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

type rosterWorld struct {
	*listers
	roster *Roster
	clock  *clock
	done   chan string // a target that was listed
}

func newRosterWorld(t *testing.T) *rosterWorld {
	t.Helper()
	w := &rosterWorld{clock: newClock(), done: make(chan string, 64), listers: &listers{
		count: map[string]int{}, fail: map[string]error{}, runner: map[string][]Registration{}, hold: map[string]chan struct{}{},
	}}
	var err error
	w.roster, err = NewRoster(RosterOptions{
		Registrars: w.listers, Now: w.clock.read, Listed: func(_ Credentials, target Target) { w.done <- target.Organization },
	})
	require.NoError(t, err)
	start(t, w.roster)
	return w
}

func start(t *testing.T, roster *Roster) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- roster.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, await.Receive(t, ended, "the roster stops"))
	})
}

func (w *rosterWorld) look(at, name string) Sighting {
	return w.roster.Look(Credentials{"ci", "pat"}, Target{Organization: at}, name)
}

func TestRoster_AHundredWhoAskCostOneListInAnInterval(t *testing.T) {
	w := newRosterWorld(t)
	w.change(func() { w.runner["acme"] = []Registration{{ID: 5, Name: "r-5", Online: true, Busy: true}} })
	first := w.look("acme", "r-5")
	require.False(t, first.Known)
	require.True(t, first.AsOf.IsZero(), "nothing was listed yet: that is no absence")
	require.Equal(t, w.clock.read().Add(askAgainSoon), first.Next)
	require.Equal(t, "acme", await.Receive(t, w.done, "a list is read"))
	for range 100 {
		for n := range 10 {
			seen := w.roster.Look(Credentials{"ci", "pat"}, Target{Organization: "acme", Group: fmt.Sprint(n)}, fmt.Sprintf("r-%d", n))
			require.Equal(t, n == 5, seen.Known)
			require.Equal(t, w.clock.read(), seen.AsOf)
			require.Equal(t, w.clock.read().Add(time.Minute), seen.Next)
		}
	}
	require.Equal(t, Registration{ID: 5, Name: "r-5", Online: true, Busy: true}, w.look("acme", "r-5").Registration)
	w.clock.pass(59 * time.Second)
	w.look("acme", "r-5")
	require.Equal(t, 1, w.lists("acme"))
	listedAt := w.look("acme", "r-5").AsOf

	w.clock.pass(time.Second)
	w.change(func() { w.runner["acme"] = nil })
	seen := w.look("acme", "r-5")
	require.True(t, seen.Known, "what is known goes on being known until the next list")
	require.Equal(t, listedAt, seen.AsOf)
	await.Receive(t, w.done, "a list is read")
	require.False(t, w.look("acme", "r-5").Known)
	require.Equal(t, 2, w.lists("acme"))
}

func TestRoster_OnlyAsOftenAsSomebodyAsks(t *testing.T) {
	w := newRosterWorld(t)
	w.look("acme", "r-1")
	await.Receive(t, w.done, "a list is read")
	w.clock.pass(24 * time.Hour)
	w.look("other", "r-1") // another target
	await.Receive(t, w.done, "a list is read")
	require.Equal(t, 1, w.lists("acme"))
	w.roster.mu.Lock()
	require.Len(t, w.roster.lists, 1, "an unused list is dropped")
	w.roster.mu.Unlock()
}

func TestRoster_OneTargetsTroubleIsItsOwn(t *testing.T) {
	w := newRosterWorld(t)
	release := make(chan struct{})
	w.change(func() { w.hold["hangs"] = release; w.fail["breaks"] = fleet.ErrUncertain })
	for _, at := range []string{"hangs", "breaks", "works"} {
		w.look(at, "r-1")
	}
	require.ElementsMatch(t, []string{"breaks", "works"}, []string{await.Receive(t, w.done, "a list is read"), await.Receive(t, w.done, "a list is read")})
	require.NoError(t, w.look("works", "r-1").Problem)
	require.ErrorIs(t, w.look("breaks", "r-1").Problem, fleet.ErrUncertain)
	seen := w.look("hangs", "r-1")
	require.True(t, seen.AsOf.IsZero())
	require.Equal(t, w.clock.read().Add(askAgainSoon), seen.Next)
	require.Eventually(t, func() bool { return w.lists("hangs") == 1 }, 10*time.Second, time.Millisecond)
	w.clock.pass(time.Hour)
	w.look("hangs", "r-1")
	w.look("works", "r-1")
	require.Equal(t, "works", await.Receive(t, w.done, "a list is read"))
	require.Equal(t, 1, w.lists("hangs"), "there is never a second one under way")
	close(release)
	require.Equal(t, "hangs", await.Receive(t, w.done, "a list is read"))
}

func TestRoster_AListThatFailsIsTriedLessAndLess(t *testing.T) {
	w := newRosterWorld(t)
	w.change(func() { w.runner["acme"] = []Registration{{ID: 5, Name: "r-5"}} })
	w.look("acme", "r-5")
	await.Receive(t, w.done, "a list is read")
	at := w.clock.read()
	w.clock.pass(time.Minute)
	w.change(func() { w.fail["acme"] = fleet.ErrUncertain })
	for n, wait := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		w.look("acme", "r-5")
		await.Receive(t, w.done, "a list is read")
		seen := w.look("acme", "r-5")
		require.True(t, seen.Known, "a list that fails takes nothing away")
		require.Equal(t, at, seen.AsOf)
		require.ErrorIs(t, seen.Problem, fleet.ErrUncertain)
		require.Equal(t, w.clock.read().Add(wait), seen.Next)
		w.clock.pass(wait - time.Second)
		w.look("acme", "r-5")
		require.Equal(t, n+2, w.lists("acme"))
		w.clock.pass(time.Second)
	}
	until := w.clock.read().Add(40 * time.Minute)
	w.change(func() { w.fail["acme"] = &fleet.RateLimitedError{Until: until} })
	w.look("acme", "r-5")
	await.Receive(t, w.done, "a list is read")
	require.Equal(t, until, w.look("acme", "r-5").Next, "a limit is waited for")
	w.clock.pass(41 * time.Minute)
	w.change(func() { w.fail["acme"] = nil })
	w.look("acme", "r-5")
	await.Receive(t, w.done, "a list is read")
	seen := w.look("acme", "r-5")
	require.NoError(t, seen.Problem)
	require.Equal(t, w.clock.read().Add(time.Minute), seen.Next, "and all is as before")
}

func TestRoster_CredentialsAreApartAndTheAppIsOne(t *testing.T) {
	w := newRosterWorld(t)
	target := Target{Organization: "acme"}
	for _, one := range []Credentials{{"ci", "pat"}, {"ci", "other"}, {"a", ""}, {"b", ""}} {
		w.roster.Look(one, target, "r-1")
	}
	for range 3 {
		await.Receive(t, w.done, "a list is read")
	}
	w.roster.mu.Lock()
	defer w.roster.mu.Unlock()
	require.Len(t, w.roster.lists, 3)
}

// Two hundred runners of one target, each asking each ten seconds for ten minutes, cost one list a minute at GitHub, and no call
// of their own.
func TestRoster_CostAtGitHub(t *testing.T) {
	w := newWorld(t, nil)
	w.on(listAcme, func(rw http.ResponseWriter, _ *http.Request) {
		var list []string
		for n := range 100 {
			list = append(list, fmt.Sprintf(`{"id":%d,"name":"r-%d","status":"online","busy":%t}`, n+1, n, n%2 == 0))
		}
		status(200, `{"total_count":100,"runners":[`+strings.Join(list, ",")+`]}`)(rw, nil)
	})
	done := make(chan struct{}, 1)
	roster, err := NewRoster(RosterOptions{Registrars: w.hub, Now: w.clock.read, Listed: func(Credentials, Target) { done <- struct{}{} }})
	require.NoError(t, err)
	start(t, roster)
	for round := range 60 {
		for n := range 200 {
			roster.Look(Credentials{"ci", "pat"}, acme, fmt.Sprintf("r-%d", n))
		}
		if round%6 == 0 {
			await.Receive(t, done, "a list is read")
		}
		seen := roster.Look(Credentials{"ci", "pat"}, acme, "r-42")
		require.NoError(t, seen.Problem)
		require.Equal(t, Registration{ID: 43, Name: "r-42", Online: true, Busy: true}, seen.Registration)
		w.clock.pass(10 * time.Second)
	}
	require.Len(t, w.calls(), 10)
}
