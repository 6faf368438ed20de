package roster_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
)

// tenants are user accounts with one repository each, and a GitHub that takes its time.
type tenants struct {
	world
	each  time.Duration
	hangs map[int64]bool // installations that GitHub does not respond for
	users []fleet.Owner
	asked map[int64]int
	many  int   // repositories of each
	stuck int64 // an installation whose lists of runners hang
}

func newTenants(t *testing.T, count int, hang ...int) (*tenants, *roster.Reader) {
	t.Helper()
	w := &tenants{
		world: world{failing: map[string]error{}, lists: map[string]fleet.Roster{}},
		each:  150 * time.Millisecond, hangs: map[int64]bool{}, asked: map[int64]int{}, many: 1,
	}
	for i := range count {
		owner := fleet.Owner{ID: int64(i + 1), Login: fmt.Sprintf("user-%03d", i), User: true, InstallationID: int64(i + 1001)}
		w.users = append(w.users, owner)
	}
	for _, i := range hang {
		w.hangs[w.users[i].InstallationID] = true
	}
	r, err := roster.New(roster.Options{Forge: w, Ledger: w})
	require.NoError(t, err)
	return w, r
}

func (w *tenants) respond(ctx context.Context, installation int64) error {
	w.mu.Lock()
	wait := w.each
	if w.hangs[installation] {
		wait = time.Hour
	}
	w.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

func (w *tenants) Owners(ctx context.Context) ([]fleet.Owner, error) {
	return w.users, w.respond(ctx, 0)
}

func (w *tenants) Repositories(ctx context.Context, installation int64, _ int) (list []fleet.Repository, whole bool, err error) {
	w.mu.Lock()
	w.asked[installation]++
	w.mu.Unlock()
	for i := range w.many {
		list = append(list, fleet.Repository{Name: fmt.Sprintf("user-%03d/app-%d", installation-1001, i)})
	}
	return list, true, w.respond(ctx, installation)
}

func (w *tenants) Roster(ctx context.Context, installation int64, scope fleet.Scope) (fleet.Roster, error) {
	w.mu.Lock()
	w.reads = append(w.reads, scope.String())
	w.mu.Unlock()
	if installation == w.stuck {
		<-ctx.Done()
	}
	return fleet.Roster{Complete: true}, w.respond(ctx, installation)
}

// podOf is a query about a pod of that account.
func (w *tenants) podOf(i int) roster.Query {
	return roster.Query{UID: uuid.NewString(), AccountID: w.users[i].ID, OwnerLabel: w.users[i].Login, Since: time.Now()}
}

// question is as long as one about lost pods may take.
func question(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TEN-11: a pod's proof costs what its own account costs, however many others there are and whether GitHub responds for them.
func TestLook_TEN11_OnlyTheAccountsThatAreNamedAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newTenants(t, 100, 3)
		began, q := time.Now(), w.podOf(70)
		got, err := r.Look(question(t), []roster.Query{q})
		require.NoError(t, err)
		require.True(t, got[q.UID].Absent, got[q.UID].Doubt)
		require.Equal(t, 3*w.each, time.Since(began), "the accounts, its repositories, its runners")
		require.Equal(t, map[int64]int{w.users[70].InstallationID: 1}, w.asked)
	})
}

// TEN-11: beside a pod of an account that hangs, and one that could be anywhere, the others are proven idle in time.
func TestLook_TEN11_AnAccountThatHangsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := []int{0}
		for i := 50; i < 90; i++ {
			hang = append(hang, i) // so many that listing all accounts takes longer than there is time
		}
		w, r := newTenants(t, 100, hang...)
		anywhere := roster.Query{UID: uuid.NewString(), Since: time.Now()}
		queries := []roster.Query{anywhere, w.podOf(0)}
		for i := 1; i < 40; i++ {
			queries = append(queries, w.podOf(i))
		}
		got, err := r.Look(question(t), queries)
		require.NoError(t, err)
		for _, q := range queries[2:] {
			require.True(t, got[q.UID].Absent, got[q.UID].Doubt)
		}
		require.Contains(t, got[queries[1].UID].Doubt, "cannot be listed")
		require.False(t, got[anywhere.UID].Absent, "EXCL-6")
	})
}

// TEN-11: nor do the many scopes of an account that hangs only once they are read.
func TestLook_TEN11_ManyScopesThatHangLeaveReadersToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newTenants(t, 2)
		w.many = 100
		w.stuck = w.users[0].InstallationID
		mine := w.podOf(1)
		got, err := r.Look(question(t), []roster.Query{w.podOf(0), mine})
		require.NoError(t, err)
		require.True(t, got[mine.UID].Absent, got[mine.UID].Doubt)
	})
}

// What its reader had to give up is not kept, and says nothing to callers that still wait for it.
func TestLook_RECV5_AListingThatWasCutOffIsBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newTenants(t, 1)
		w.each = time.Second
		short, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		q := w.podOf(0)
		var waiting map[string]roster.Sighting
		var wait sync.WaitGroup
		wait.Go(func() {
			<-time.After(1200 * time.Millisecond)
			waiting, _ = r.Look(t.Context(), []roster.Query{q})
		})
		got, err := r.Look(short, []roster.Query{q})
		require.NoError(t, err)
		require.False(t, got[q.UID].Absent)
		wait.Wait()
		require.True(t, waiting[q.UID].Absent, waiting[q.UID].Doubt)
		require.Equal(t, 2, w.asked[w.users[0].InstallationID])
	})
}

// An account whose list takes longer than it may beside others is read when it is asked for alone.
func TestLook_RECV5_ASlowAccountIsReadAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newTenants(t, 2)
		w.each = 3 * time.Second
		slow := w.podOf(0)
		got, err := r.Look(t.Context(), []roster.Query{slow, w.podOf(1)})
		require.NoError(t, err)
		require.Contains(t, got[slow.UID].Doubt, "cannot be listed")
		got, err = r.Look(t.Context(), []roster.Query{slow})
		require.NoError(t, err)
		require.True(t, got[slow.UID].Absent, got[slow.UID].Doubt)
	})
}

// However many ask at once, an account is listed once.
func TestLook_ConcurrentCallersShareAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newTenants(t, 3)
		since := time.Now()
		var wait sync.WaitGroup
		for i := range 30 {
			wait.Go(func() {
				q := w.podOf(i % 3)
				q.Since = since
				_, _ = r.Look(t.Context(), []roster.Query{q})
			})
		}
		wait.Wait()
		for _, owner := range w.users {
			require.Equal(t, 1, w.asked[owner.InstallationID])
		}
		require.Len(t, w.reads, 3)
	})
}
