package rebuild

import (
	"context"
	"errors"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
)

// Bounds of the search for the jobs of one account's runners. A job that is not found is bound when GitHub names it: its deliveries are
// requested again, and the claim is charged and kept in any case.
const (
	maxRepositories = 50
	maxRequests     = 200
)

// hunt is which runners' jobs are looked for, by account.
type hunt struct {
	turn     epoch.Turn
	accounts map[int64]*quarry
	order    []int64
}

type quarry struct {
	account dispatch.Account
	runners map[string]bool // by name
	scopes  []string        // repositories that runners are registered at
	spent   int             // requests
}

func newHunt(turn epoch.Turn) *hunt { return &hunt{turn: turn, accounts: map[int64]*quarry{}} }

func (h *hunt) want(account dispatch.Account, runner roster.Found) {
	q := h.accounts[account.ID]
	if q == nil {
		q = &quarry{account: account, runners: map[string]bool{}}
		h.accounts[account.ID] = q
		h.order = append(h.order, account.ID)
	}
	q.runners[runner.Name] = true
	if runner.Scope.Repo != "" {
		q.scopes = append(q.scopes, runner.Scope.String())
	}
}

func (h *hunt) left() int {
	n := 0
	for _, q := range h.accounts {
		n += len(q.runners)
	}
	return n
}

// findJobs looks through the runs in progress of the accounts' repositories for jobs that name our runners, and records them:
// that binds them to the claims. It returns how many it has found; the only error is epoch.ErrTurnOver.
func (r *Rebuilder) findJobs(ctx context.Context, h *hunt) (int, error) {
	before := h.left()
	for _, id := range h.order {
		q := h.accounts[id]
		for _, repository := range r.repositories(ctx, q) {
			if len(q.runners) == 0 || q.spent >= maxRequests || ctx.Err() != nil {
				break
			}
			if err := r.searchRepository(ctx, h, q, repository); errors.Is(err, epoch.ErrTurnOver) {
				return 0, err
			} else if err != nil {
				r.opt.Log.WarnContext(ctx, "finding the jobs of busy runners", "repository", repository, "error", err)
			}
		}
	}
	return before - h.left(), nil
}

// repositories to search, the likeliest first: where the runners are registered, where the account had jobs before the backup,
// and, for want of those, whichever it has.
func (r *Rebuilder) repositories(ctx context.Context, q *quarry) []string {
	seen := map[string]bool{}
	var names []string
	add := func(more []string) {
		for _, name := range more {
			if !seen[name] && len(names) < maxRepositories {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	add(q.scopes)
	recent, err := r.opt.Ledger.RecentRepositories(ctx, q.account.ID, maxRepositories)
	if err != nil {
		r.opt.Log.WarnContext(ctx, "finding the jobs of busy runners", "account", q.account.Login, "error", err)
	}
	add(recent)
	if len(names) < maxRepositories {
		q.spent++
		others, _, err := r.opt.Forge.Repositories(ctx, q.account.InstallationID, maxRepositories)
		if err != nil {
			r.opt.Log.WarnContext(ctx, "finding the jobs of busy runners", "account", q.account.Login, "error", err)
		}
		for _, one := range others {
			add([]string{one.Name})
		}
	}
	return names
}

func (r *Rebuilder) searchRepository(ctx context.Context, h *hunt, q *quarry, repository string) error {
	for page := 1; page != 0; {
		q.spent++
		runs, next, err := r.opt.Forge.Runs(ctx, q.account.InstallationID, repository, github.RunInProgress, page)
		if err != nil {
			return err
		}
		for _, run := range runs {
			whose := run.Repository
			if whose.Name == "" {
				whose.Name = repository
			}
			if err := r.searchRun(ctx, h, q, whose, run.ID); err != nil {
				return err
			}
			if len(q.runners) == 0 || q.spent >= maxRequests {
				return nil
			}
		}
		page = next
	}
	return nil
}

func (r *Rebuilder) searchRun(ctx context.Context, h *hunt, q *quarry, repository fleet.Repository, runID int64) error {
	for page := 1; page != 0; {
		q.spent++
		jobs, next, err := r.opt.Forge.RunJobs(ctx, q.account.InstallationID, repository.Name, runID, page)
		if err != nil {
			return err
		}
		for _, job := range jobs {
			kind, known := intake.StatusEvent(job)
			if !known || !q.runners[job.RunnerName] {
				continue
			}
			if _, err := r.opt.Ledger.RecordFound(ctx, h.turn, intake.JobEvent(kind, q.account, repository, job), r.opt.Now()); err != nil {
				return err
			}
			delete(q.runners, job.RunnerName)
		}
		page = next
	}
	return nil
}
