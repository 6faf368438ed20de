package roster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// world is a GitHub in memory and a clock.
type world struct {
	mu        sync.Mutex
	now       time.Time
	owners    []fleet.Owner
	repos     []fleet.Repository
	whole     bool
	known     []roster.Known
	lists     map[string]fleet.Roster
	failing   map[string]error
	reads     []string
	rate      *fleet.RateState
	ownersErr error
	during    func()
}

func (w *world) Owners(context.Context) ([]fleet.Owner, error) { return w.owners, w.ownersErr }
func (w *world) Repositories(context.Context, int64, int) ([]fleet.Repository, bool, error) {
	return w.repos, w.whole, nil
}
func (w *world) RepositoryScopes(context.Context) ([]roster.Known, error) { return w.known, nil }
func (w *world) ReadRate(int64) (fleet.RateState, bool) {
	if w.rate == nil {
		return fleet.RateState{}, false
	}
	return *w.rate, true
}

func (w *world) Roster(_ context.Context, _ int64, scope fleet.Scope) (fleet.Roster, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads = append(w.reads, scope.String())
	if w.during != nil {
		w.during()
	}
	if err := w.failing[scope.String()]; err != nil {
		return fleet.Roster{}, err
	}
	return w.lists[scope.String()], nil
}

var (
	acme    = fleet.Owner{ID: 1, Login: "acme", InstallationID: 101}
	globex  = fleet.Owner{ID: 2, Login: "globex", InstallationID: 102}
	someone = fleet.Owner{ID: 3, Login: "someone", User: true, InstallationID: 103}
)

func newWorld(t *testing.T, change func(*roster.Options)) (*world, *roster.Reader) {
	t.Helper()
	w := &world{
		now: time.Unix(1_000_000, 0), owners: []fleet.Owner{acme, globex}, whole: true, failing: map[string]error{},
		lists: map[string]fleet.Roster{"acme": {Complete: true}, "globex": {Complete: true}},
	}
	opt := roster.Options{Forge: w, Ledger: w, Now: func() time.Time { return w.now }}
	if change != nil {
		change(&opt)
	}
	r, err := roster.New(opt)
	require.NoError(t, err)
	return w, r
}

func runner(t *testing.T, uid string, id int64) fleet.Registration {
	t.Helper()
	name, err := runnerpod.RunnerName(uid, id)
	require.NoError(t, err)
	return fleet.Registration{ID: id, Name: name}
}

func look(t *testing.T, r *roster.Reader, queries ...roster.Query) map[string]roster.Sighting {
	t.Helper()
	out, err := r.Look(t.Context(), queries)
	require.NoError(t, err)
	require.Len(t, out, len(queries))
	return out
}

func TestLook_FindsByPrefixInEveryScopeAndReadsEachOnce(t *testing.T) {
	w, r := newWorld(t, nil)
	pods := make([]roster.Query, 500)
	for i := range pods {
		pods[i] = roster.Query{UID: uuid.NewString(), Since: w.now}
	}
	w.lists["globex"] = fleet.Roster{Complete: true, Runners: []fleet.Registration{
		{ID: 1, Name: "somebody-elses"}, runner(t, pods[7].UID, 9), runner(t, pods[7].UID, 10),
	}}
	seen := look(t, r, pods...)
	require.Len(t, w.reads, 2, "500 pods, two scopes, two requests")
	require.Len(t, seen[pods[7].UID].Found, 2)
	require.Equal(t, "globex", seen[pods[7].UID].Found[0].Scope.String())
	require.EqualValues(t, 102, seen[pods[7].UID].Found[0].Owner.InstallationID)
	require.False(t, seen[pods[7].UID].Absent)
	require.True(t, seen[pods[8].UID].Absent)
	require.Empty(t, seen[pods[8].UID].Doubt)
	look(t, r, pods...)
	require.Len(t, w.reads, 2, "kept")
	w.now = w.now.Add(3 * time.Minute)
	look(t, r, pods...)
	require.Len(t, w.reads, 4, "and not for ever")
}

func TestLook_LetsGoOfListsOfAccountsThatAreGone(t *testing.T) {
	w, r := newWorld(t, nil)
	query := roster.Query{UID: uuid.NewString()}
	for i := range 100 { // one comes as another goes
		login := fmt.Sprintf("org-%d", i)
		w.owners = []fleet.Owner{acme, {ID: int64(i + 10), Login: login, InstallationID: int64(i + 1000)}}
		w.lists[login] = fleet.Roster{Complete: true}
		query.Since = w.now
		require.True(t, look(t, r, query)[query.UID].Absent)
		require.LessOrEqual(t, r.Readings(), 6, "the two of now, and those of the time that one is kept, and of the one before")
		w.now = w.now.Add(time.Minute)
	}
}

// EXCL-6: nothing is proven by a scope that is not read, or not whole, or was read before the pod was out of reach.
func TestLook_EXCL6_DoubtProvesNothing(t *testing.T) {
	uid := uuid.NewString()
	cases := map[string]struct {
		change func(*world)
		doubt  string
	}{
		"unreadable":    {func(w *world) { w.failing["globex"] = fleet.ErrForbidden }, "cannot be read"},
		"torn":          {func(w *world) { w.lists["globex"] = fleet.Roster{Doubt: "it changed"} }, "it changed"},
		"not whole":     {func(w *world) { w.lists["globex"] = fleet.Roster{} }, "not read whole"},
		"suspended":     {func(w *world) { w.owners[1].Suspended = true }, "suspended"},
		"nobody to ask": {func(w *world) { w.owners = nil }, "no account"},
		"few requests": {func(w *world) {
			w.rate = &fleet.RateState{Limit: 5000, Remaining: 499, Reset: w.now.Add(time.Minute)}
		}, "few requests"},
		"too many repositories": {func(w *world) {
			w.owners, w.whole = append(w.owners, someone), false
		}, "more than 200"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t, nil)
			c.change(w)
			got := look(t, r, roster.Query{UID: uid, Since: w.now})[uid]
			require.False(t, got.Absent)
			require.Contains(t, got.Doubt, c.doubt)
		})
	}
	t.Run("read before", func(t *testing.T) {
		w, r := newWorld(t, nil)
		require.True(t, look(t, r, roster.Query{UID: uid, Since: w.now})[uid].Absent)
		w.lists["acme"] = fleet.Roster{Complete: true, Runners: []fleet.Registration{runner(t, uid, 5)}}
		require.True(t, look(t, r, roster.Query{UID: uid, Since: w.now})[uid].Absent, "the kept reading is new enough for that")
		got := look(t, r, roster.Query{UID: uid, Since: w.now.Add(time.Second)})[uid]
		require.False(t, got.Absent, "but not for one that was out of reach only later")
	})
	t.Run("a new account", func(t *testing.T) {
		w, r := newWorld(t, nil)
		require.True(t, look(t, r, roster.Query{UID: uid, Since: w.now})[uid].Absent)
		initech := fleet.Owner{ID: 4, Login: "initech", InstallationID: 104}
		w.owners = append(w.owners, initech)
		w.lists["initech"] = fleet.Roster{Complete: true, Runners: []fleet.Registration{runner(t, uid, 5)}}
		require.False(t, look(t, r, roster.Query{UID: uid, Since: w.now.Add(time.Second)})[uid].Absent)
	})
	t.Run("no UUID", func(t *testing.T) {
		_, r := newWorld(t, nil)
		require.False(t, look(t, r, roster.Query{UID: "x"})["x"].Absent)
	})
	t.Run("accounts unknown", func(t *testing.T) {
		w, r := newWorld(t, nil)
		w.ownersErr = errors.New("no")
		_, err := r.Look(t.Context(), []roster.Query{{UID: uid}})
		require.Error(t, err)
	})
	t.Run("out of time", func(t *testing.T) {
		_, r := newWorld(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		got, err := r.Look(ctx, []roster.Query{{UID: uid}})
		require.NoError(t, err)
		require.Contains(t, got[uid].Doubt, "still being read")
	})
}

// A doubtful reading is not kept; and a scope that cannot be read does not delay other accounts.
func TestLook_DoubtEndsAndDelaysNoOtherAccount(t *testing.T) {
	w, r := newWorld(t, nil)
	uid := uuid.NewString()
	w.failing["globex"] = fleet.ErrForbidden
	got := look(t, r, roster.Query{UID: uid, OwnerLabel: "acme", Since: w.now})[uid]
	require.True(t, got.Absent)
	require.Equal(t, []string{"acme"}, w.reads)
	require.False(t, look(t, r, roster.Query{UID: uid, Since: w.now})[uid].Absent)
	delete(w.failing, "globex")
	require.True(t, look(t, r, roster.Query{UID: uid, Since: w.now})[uid].Absent, "RECV-5")
	gone := look(t, r, roster.Query{UID: uid, OwnerLabel: "uninstalled", Since: w.now})[uid]
	require.False(t, gone.Absent)
	require.Contains(t, gone.Doubt, "uninstalled")
}

// knownAt are repositories of which only the name is known.
func knownAt(names ...string) (known []roster.Known) {
	for _, name := range names {
		known = append(known, roster.Known{Repository: name})
	}
	return known
}

// EXCL-6: an account that was renamed is looked into at the repositories where its runners were registered, by its id; and one
// that has taken the former name is not taken for it.
func TestLook_EXCL6_ARenamedAccountsRepositoriesAreItsOwn(t *testing.T) {
	w, r := newWorld(t, nil)
	w.owners = []fleet.Owner{{ID: acme.ID, Login: "acme-inc", InstallationID: acme.InstallationID}, globex}
	w.known = []roster.Known{{AccountID: acme.ID, Repository: "acme/app"}}
	uid := uuid.NewString()
	w.lists["acme-inc"] = fleet.Roster{Complete: true}
	w.lists["acme-inc/app"] = fleet.Roster{Complete: true, Runners: []fleet.Registration{runner(t, uid, 9)}}
	got := look(t, r, roster.Query{UID: uid, Since: w.now})[uid]
	require.False(t, got.Absent, "its runner is at acme-inc/app")
	require.Len(t, got.Found, 1)
	require.ElementsMatch(t, []string{"acme-inc", "acme-inc/app", "globex"}, w.reads)
}

// EXCL-6: a pod that was stamped before its account was renamed is looked for in that account, by its id, though another one
// has the name now: what is not listed there proves nothing.
func TestLook_EXCL6_AnAccountThatHasTakenTheNameIsNotAskedForAnothersPod(t *testing.T) {
	w, r := newWorld(t, nil)
	w.owners = []fleet.Owner{
		{ID: acme.ID, Login: "acme-inc", InstallationID: acme.InstallationID}, {ID: 99, Login: "acme", InstallationID: 990},
	}
	uid := uuid.NewString()
	w.lists["acme"] = fleet.Roster{Complete: true}
	w.lists["acme-inc"] = fleet.Roster{Complete: true, Runners: []fleet.Registration{runner(t, uid, 9)}}
	byName := look(t, r, roster.Query{UID: uid, OwnerLabel: "acme", Since: w.now})[uid]
	require.True(t, byName.Absent, "an earlier version has stamped no id: the name is all there is")
	w.reads, w.now = nil, w.now.Add(time.Second)
	got := look(t, r, roster.Query{UID: uid, AccountID: acme.ID, OwnerLabel: "acme", Since: w.now})[uid]
	require.False(t, got.Absent)
	require.Len(t, got.Found, 1)
	require.Equal(t, []string{"acme-inc"}, w.reads)
	gone := look(t, r, roster.Query{UID: uid, AccountID: 12345, OwnerLabel: "acme", Since: w.now})[uid]
	require.False(t, gone.Absent)
	require.NotEmpty(t, gone.Doubt)
}

func TestLook_RepositoriesOfUsersAndOfPoolsThatRegisterThere(t *testing.T) {
	byRepo := false
	w, r := newWorld(t, func(o *roster.Options) { o.ByRepository = func() bool { return byRepo } })
	w.owners = []fleet.Owner{acme, someone}
	w.repos = []fleet.Repository{{Name: "someone/toy"}, {Name: "acme/app"}}
	w.known = knownAt("acme/old", "Someone/Toy", "nobody/else")
	for _, scope := range []string{"someone/toy", "Someone/Toy", "acme/old", "acme/app"} {
		w.lists[scope] = fleet.Roster{Complete: true}
	}
	uid := uuid.NewString()
	require.True(t, look(t, r, roster.Query{UID: uid, Since: w.now})[uid].Absent)
	require.ElementsMatch(t, []string{"acme", "acme/old", "Someone/Toy"}, w.reads)
	byRepo, w.reads, w.now = true, nil, w.now.Add(time.Second)
	require.True(t, look(t, r, roster.Query{UID: uid, Since: w.now})[uid].Absent)
	require.ElementsMatch(t, []string{"acme", "acme/old", "acme/app", "Someone/Toy"}, w.reads)
}

// EXCL-6: two repositories that had one name after the other are two places, and each is read.
func TestLook_EXCL6_ARepositoryThatHasTakenANameIsNotTakenForTheOther(t *testing.T) {
	w, r := newWorld(t, func(o *roster.Options) { o.ByRepository = func() bool { return true } })
	w.owners = []fleet.Owner{acme}
	w.known = []roster.Known{{AccountID: acme.ID, Repository: "acme/app", RepositoryID: 700}}
	w.repos = []fleet.Repository{{Name: "acme/app", ID: 701}, {Name: "acme/former", ID: 700}}
	w.whole = true
	uid := uuid.NewString()
	w.lists["acme"], w.lists["acme/app"] = fleet.Roster{Complete: true}, fleet.Roster{Complete: true}
	require.True(t, look(t, r, roster.Query{UID: uid, Since: w.now})[uid].Absent)
	require.ElementsMatch(t, []string{"acme", "acme/app", "acme/app"}, w.reads, "the first by its id, whatever it is called")
}

// More repositories than are read may have a runner of ours: those that are left out prove nothing.
func TestLook_EXCL6_RepositoriesThatAreLeftOutProveNothing(t *testing.T) {
	w, r := newWorld(t, func(o *roster.Options) { o.MaxRepositories = 1 })
	uid := uuid.NewString()
	w.known = knownAt("acme/one", "acme/two")
	w.lists["acme/one"] = fleet.Roster{Complete: true}
	w.lists["acme/two"] = fleet.Roster{Complete: true, Runners: []fleet.Registration{runner(t, uid, 9)}}
	got := look(t, r, roster.Query{UID: uid, Since: w.now})[uid]
	require.False(t, got.Absent, "its runner is at acme/two")
	require.Contains(t, got.Doubt, "more than 1 repositories")
	require.ElementsMatch(t, []string{"acme", "globex", "acme/one"}, w.reads)
}

func TestLook_ManyAskAtOnce(t *testing.T) {
	w, r := newWorld(t, nil)
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			uid := uuid.NewString()
			got, err := r.Look(t.Context(), []roster.Query{{UID: uid, Since: w.now}})
			if err != nil || !got[uid].Absent {
				panic(fmt.Sprint(i, got, err))
			}
		})
	}
	await.Return(t, wait.Wait, "the concurrent calls return")
	require.Len(t, w.reads, 2)
}
