package catchup_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

// backlogs are a ledger in which accounts have repositories to sweep and jobs to ask about, and a GitHub that takes a while for each call.
type backlogs struct {
	catchup.Ledger
	catchup.Forge
	call time.Duration

	mu     sync.Mutex
	due    map[int64][]string // by account
	swept  map[string]time.Duration
	began  time.Time
	resume map[string]catchup.Resume
	runs   map[string]int // of a repository
	walked []int64
}

func newBacklogs(t *testing.T, call time.Duration) (*backlogs, *catchup.CatchUp) {
	t.Helper()
	b := &backlogs{
		call: call, due: map[int64][]string{}, swept: map[string]time.Duration{}, began: time.Now(),
		resume: map[string]catchup.Resume{}, runs: map[string]int{},
	}
	c, err := catchup.New(catchup.Options{
		Ledger: b, Forge: b, Intake: &intake.Intake{}, Pools: func() []dispatch.Pool { return nil }, Count: func(recovery.Kind) {},
	})
	require.NoError(t, err)
	return b, c
}

// owes gives an account that many repositories to sweep, which are jobs to ask about, too.
func (b *backlogs) owes(account int64, items int) {
	for i := range items {
		b.due[account] = append(b.due[account], fmt.Sprintf("a%d/%04d", account, i))
	}
}

func (b *backlogs) AccountsAfter(_ context.Context, after int64, most int) ([]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []int64
	for id := range b.due {
		if id > after {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids[:min(most, len(ids))], nil
}

func (b *backlogs) RepositoriesToSweep(_ context.Context, _, _ time.Time, accounts []int64, most int) (list []catchup.Repository, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range accounts {
		for _, name := range b.due[id][:min(most, len(b.due[id]))] {
			list = append(list, catchup.Repository{Name: name, Account: dispatch.Account{ID: id, InstallationID: id}, Resume: b.resume[name]})
		}
	}
	return list, nil
}

func (b *backlogs) Swept(_ context.Context, name string, _ time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.swept[name] = time.Since(b.began)
	for id, names := range b.due {
		b.due[id] = slices.DeleteFunc(names, func(one string) bool { return one == name })
	}
	return nil
}

func (b *backlogs) SweptPartly(_ context.Context, name string, reached catchup.Resume) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resume[name] = reached
	return nil
}

func (b *backlogs) JobsToAskAbout(ctx context.Context, before time.Time, accounts []int64, most int) (list []catchup.WaitingJob, err error) {
	repositories, err := b.RepositoriesToSweep(ctx, before, before, accounts, most)
	for _, r := range repositories {
		var job int64
		_, _ = fmt.Sscanf(r.Name[len(r.Name)-4:], "%d", &job)
		ev := dispatch.JobEvent{Account: r.Account, JobID: r.Account.ID*10_000 + job, Repository: r.Name}
		list = append(list, catchup.WaitingJob{State: fleet.JobQueued, Event: ev})
	}
	return list, err
}

func (b *backlogs) AskedAbout(ctx context.Context, ids []int64, at time.Time) error {
	return b.Swept(ctx, fmt.Sprintf("a%d/%04d", ids[0]/10_000, ids[0]%10_000), at)
}

func (b *backlogs) ExpireJobs(context.Context, time.Time, time.Time, time.Time, int) ([]int64, error) {
	return nil, nil
}

func (b *backlogs) JobStates(context.Context, []int64) (map[int64]fleet.JobState, error) {
	return nil, nil
}

func (b *backlogs) RateState(int64, string) (fleet.RateState, bool) {
	return fleet.RateState{Limit: 1_000_000, Remaining: 1_000_000, Reset: time.Now().Add(time.Hour)}, true
}

func (b *backlogs) AppRate() (fleet.RateState, bool) { return b.RateState(0, "") }

func (b *backlogs) respond(ctx context.Context) error {
	select {
	case <-time.After(b.call):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *backlogs) Runs(ctx context.Context, _ int64, repository, status string, _ int) (list []github.Run, next int, err error) {
	if status == github.RunQueued {
		for i := b.runs[repository]; i > 0; i-- {
			list = append(list, github.Run{ID: int64(i)})
		}
	}
	return list, 0, b.respond(ctx)
}

func (b *backlogs) RunJobs(ctx context.Context, _ int64, _ string, run int64, _ int) ([]github.WorkflowJob, int, error) {
	b.mu.Lock()
	b.walked = append(b.walked, run)
	b.mu.Unlock()
	return nil, 0, b.respond(ctx)
}

func (b *backlogs) Job(ctx context.Context, _ int64, _ fleet.Repository, id int64) (github.WorkflowJob, error) {
	return github.WorkflowJob{ID: id, Status: github.JobQueued}, b.respond(ctx)
}

// done is how many items were worked off of an account.
func (b *backlogs) done(account int64) (items int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.swept {
		var of int64
		_, _ = fmt.Sscanf(name, "a%d/", &of)
		if of == account {
			items++
		}
	}
	return items
}

// TEN-11, RECV-7, RECV-8: an account's backlog, however long, delays no other account by more than a few turns, and what is left of the time is
// its own.
func TestPasses_TEN11_ABacklogDelaysNoOtherAccount(t *testing.T) {
	for name, run := range map[string]func(*catchup.CatchUp, context.Context) error{
		"sweep": (*catchup.CatchUp).Sweep, "queued": (*catchup.CatchUp).Queued,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, c := newBacklogs(t, 250*time.Millisecond)
				for account := int64(1); account <= 8; account++ { // as many as are processed concurrently
					b.owes(account, 500)
				}
				b.owes(9, 1)
				require.NoError(t, run(c, t.Context()))
				require.Equal(t, 1, b.done(9))
				require.Less(t, b.swept["a9/0000"], 5*time.Second)
				for account := int64(1); account <= 8; account++ {
					require.GreaterOrEqual(t, b.done(account), 30, "the rest of the pass is for the backlogs")
				}
			})
		})
	}
}

// RECV-5: where there are more backlogs than a pass has turns, the next pass begins with the accounts that had none.
func TestPasses_RECV5_TheNextPassBeginsWithThoseThatHadNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBacklogs(t, 250*time.Millisecond)
		const accounts = 300
		for account := int64(1); account <= accounts; account++ {
			b.owes(account, 500)
		}
		waiting := func() (ids []int64) {
			for account := int64(1); account <= accounts; account++ {
				if b.done(account) == 0 {
					ids = append(ids, account)
				}
			}
			return ids
		}
		for passes := 0; len(waiting()) > 0; passes++ {
			require.Less(t, passes, 7, "a pass has 56 turns, and %v had none", waiting())
			require.NoError(t, c.Sweep(t.Context()))
		}
		clear(b.due)
		b.owes(accounts, 1)
		b.owes(2, 1) // and goes round
		b.swept = map[string]time.Duration{}
		require.NoError(t, c.Sweep(t.Context()))
		require.Len(t, b.swept, 2)
	})
}

// A repository with more runs than fit into a turn is gone on with in the next one.
func TestSweep_TEN11_ALargeRepositoryTakesManyTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBacklogs(t, 250*time.Millisecond)
		for account := int64(1); account <= 8; account++ { // as many as are processed concurrently
			b.owes(account, 1)
			b.runs[fmt.Sprintf("a%d/0000", account)] = 30
		}
		b.owes(9, 1)
		require.NoError(t, c.Sweep(t.Context()))
		require.Len(t, b.swept, 9)
		require.Less(t, b.swept["a9/0000"], 5*time.Second)
		require.Len(t, b.walked, 8*30, "each run once")
	})
}

// Accounts are read a page at a time, and each is let in, wherever a pass begins.
func TestPasses_TEN11_SeveralPagesOfAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBacklogs(t, time.Millisecond)
		for account := int64(1); account <= 450; account++ {
			b.owes(account, 1)
		}
		b.owes(451, 300)
		require.NoError(t, c.Sweep(t.Context()))
		require.Equal(t, 750, len(b.swept)) //nolint:testifylint // the map is long
	})
}

// TEN-11: the ledger reads so many items of each account, whatever the others have.
func TestLedger_TEN11_ItemsAreReadByAccount(t *testing.T) {
	w := newWorld(t, nil)
	second := dispatch.Account{ID: 6, Login: "other", InstallationID: 66}
	for i := range 5 {
		for _, owner := range []dispatch.Account{someone, second} {
			_, err := w.intake.Observe(t.Context(), dispatch.JobEvent{
				Kind: fleet.JobEventQueued, Account: owner, JobID: owner.ID*100 + int64(i), Repository: fmt.Sprintf("%s/r%d", owner.Login, i),
				Labels: []string{jobLabel}, QueuedAt: w.clock.Now().Add(time.Duration(-i) * time.Minute),
			}, w.clock.Now())
			require.NoError(t, err)
		}
	}
	w.clock.Advance(time.Hour)
	accounts, err := w.store.AccountsAfter(t.Context(), someone.ID-1, 2)
	require.NoError(t, err)
	require.Equal(t, []int64{5, 6}, accounts)
	repositories, err := w.store.RepositoriesToSweep(t.Context(), w.clock.Now(), time.Time{}, accounts, 2)
	require.NoError(t, err)
	var names []string
	for _, r := range repositories {
		names = append(names, r.Name)
	}
	require.Equal(t, []string{"someone/r0", "someone/r1", "other/r0", "other/r1"}, names)
	jobs, err := w.store.JobsToAskAbout(t.Context(), w.clock.Now(), accounts, 2)
	require.NoError(t, err)
	var ids []int64
	for _, j := range jobs {
		ids = append(ids, j.Event.JobID)
	}
	require.Equal(t, []int64{504, 503, 604, 603}, ids, "the oldest first")
}
