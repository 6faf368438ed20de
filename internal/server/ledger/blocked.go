package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// Why a queued job is blocked, which keeps it out of its lane. The database calls such jobs held: the column is
// workflow_jobs.held, and the queries in queries/held.sql are named after it (ADR 0013).
const (
	blockedByCap     = "repository_limit"
	blockedByRemoval = "repository_removed"
	blockedByRefusal = "refused"     // its repository waits for what GitHub has refused
	blockedByOwn     = "refused_job" // it waits for what GitHub has refused for it alone
	blockedByLabels  = "label_sets"  // its account has as many lanes as one may have, and none for these labels
)

// blockedAtOnce bounds how many jobs one statement sets aside, or brings back.
const blockedAtOnce = 1000

// shares is what the capped repositories of a batch's accounts may still take.
type shares struct {
	caps map[int64]int64 // account → cap; accounts without one are missing
	used map[dispatch.Repository]int64
}

// readShares reads, after the locks, what runs of each repository of those accounts (CLAIM-5).
func (t *batchTx) readShares(ctx context.Context) error {
	t.shares.used = map[dispatch.Repository]int64{}
	if len(t.shares.caps) == 0 {
		return nil
	}
	var accounts []int64
	for id := range t.shares.caps {
		accounts = append(accounts, id)
	}
	rows, err := t.q.RepositoryUsage(ctx, accounts, string(t.b.Pool.Platform))
	for _, row := range rows {
		t.shares.used[dispatch.Repository{AccountID: deref(row.AccountID), Name: row.Repository}] = row.Jobs
	}
	return err
}

// left is how many more jobs of the repository may be claimed; ok is false where there is no cap.
func (s shares) left(r dispatch.Repository) (n int64, ok bool) {
	limit, capped := s.caps[r.AccountID]
	return max(0, limit-s.used[r]), capped
}

// setAside takes the jobs of repositories that are at their cap, this batch's claims counted, out of the lanes they were
// met in, so that no later pick meets them. It costs what the batch read, and at most blockedAtOnce jobs a lane.
func (t *batchTx) setAside(ctx context.Context, crowded []dispatch.QueuedJob) ([]dispatch.QueuedJob, error) {
	for _, claim := range t.out.Claims {
		t.shares.used[dispatch.Repository{AccountID: claim.Account.ID, Name: claim.Repository}]++
	}
	var arg sqlcgen.SetAsideParams
	full := dispatch.Full(crowded, t.shares.left)
	for _, job := range full {
		arg.LabelKeys = append(arg.LabelKeys, job.LabelKey)
		arg.Accounts = append(arg.Accounts, job.AccountID)
		arg.Repositories = append(arg.Repositories, job.Repository)
	}
	if len(full) == 0 {
		return nil, nil
	}
	arg.Most = blockedAtOnce
	if _, err := t.q.SetAside(ctx, arg); err != nil {
		return nil, fmt.Errorf("setting jobs aside: %w", err)
	}
	return full, nil
}

// returned puts jobs that are no longer blocked back into their lanes.
func returned(ctx context.Context, q *sqlcgen.Queries, accountID int64, rows []sqlcgen.ReturnHeldRow) error {
	oldest := map[string]time.Time{}
	for _, row := range rows {
		if at, ok := oldest[row.LabelKey]; !ok || row.QueuedAt.Before(at) {
			oldest[row.LabelKey] = row.QueuedAt
		}
	}
	for _, key := range sortedKeys(oldest) {
		if err := feedLane(ctx, q, key, accountID, oldest[key]); err != nil {
			return err
		}
		if err := q.NotifyWork(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// returnNext brings the next job of a repository back, of which a job has left the queue or ended.
func returnNext(ctx context.Context, q *sqlcgen.Queries, accountID, jobID int64) error {
	rows, err := q.ReturnNext(ctx, accountID, jobID)
	if err != nil || len(rows) == 0 {
		return err
	}
	same := make([]sqlcgen.ReturnHeldRow, len(rows))
	for i, row := range rows {
		same[i] = sqlcgen.ReturnHeldRow(row)
	}
	return returned(ctx, q, accountID, same)
}

// returnBlockedOf unblocks as many jobs of each repository of the account as there is room for by its caps: after a cap
// was raised, and for room that returnNext missed.
func (s *Store) returnBlockedOf(ctx context.Context, q *sqlcgen.Queries, accountID int64) error {
	repositories, err := q.HeldRepositoriesOfAccount(ctx, blockedAtOnce, accountID, "")
	if err != nil || len(repositories) == 0 {
		return err
	}
	limits, err := q.LimitsOf(ctx, []int64{accountID})
	if err != nil {
		return err
	}
	room := func(string) int64 { return 0 }
	for _, l := range limits {
		use, err := q.RepositoryUsage(ctx, []int64{accountID}, l.Platform)
		if err != nil {
			return err
		}
		used := map[string]int64{}
		for _, u := range use {
			used[u.Repository] = u.Jobs
		}
		// Which platform a job is for is known when it is picked; one that is unblocked for nothing is set aside
		// again.
		former, limit := room, s.repositoryCap(l.RepositoryJobs)
		room = func(repository string) int64 {
			if limit == 0 {
				return blockedAtOnce
			}
			return max(former(repository), limit-used[repository])
		}
	}
	for len(repositories) > 0 {
		if err := returnForgotten(ctx, q, accountID, repositories); err != nil {
			return err
		}
		for _, repository := range repositories {
			n := min(room(repository), blockedAtOnce)
			if n <= 0 {
				continue
			}
			if err := returnRepository(ctx, q, accountID, repository, blockedByCap, n); err != nil {
				return err
			}
		}
		if len(repositories) < blockedAtOnce {
			return nil
		}
		last := repositories[len(repositories)-1]
		if repositories, err = q.HeldRepositoriesOfAccount(ctx, blockedAtOnce, accountID, last); err != nil {
			return err
		}
	}
	return nil
}

// returnForgotten returns jobs to the queue that are held for refusals that no longer stand.
func returnForgotten(ctx context.Context, q *sqlcgen.Queries, accountID int64, repositories []string) error {
	for _, repository := range repositories {
		rows, err := q.ReturnForgotten(ctx, accountID, repository, blockedAtOnce)
		if err != nil {
			return fmt.Errorf("bringing back jobs of %s that GitHub does not refuse any more: %w", repository, err)
		}
		same := make([]sqlcgen.ReturnHeldRow, len(rows))
		for i, row := range rows {
			same[i] = sqlcgen.ReturnHeldRow(row)
		}
		if err := returned(ctx, q, accountID, same); err != nil {
			return err
		}
	}
	return nil
}

func returnRepository(ctx context.Context, q *sqlcgen.Queries, accountID int64, repository, reason string, most int64) error {
	rows, err := q.ReturnHeld(ctx, sqlcgen.ReturnHeldParams{
		AccountID: accountID, Repository: repository, Reason: reason, Most: int32(most), //nolint:gosec // at most blockedAtOnce
	})
	if err != nil {
		return fmt.Errorf("bringing blocked jobs back: %w", err)
	}
	return returned(ctx, q, accountID, rows)
}

// returnLabelled brings back jobs of the account whose label sets there was no room for: those that have a lane now, and as many as it may have
// further lanes.
func (s *Store) returnLabelled(ctx context.Context, q *sqlcgen.Queries, accountID int64) error {
	lanes, err := q.LanesWithHeld(ctx, accountID, blockedAtOnce)
	if err != nil {
		return fmt.Errorf("finding held jobs that have a lane: %w", err)
	}
	same := make([]sqlcgen.ReturnHeldRow, len(lanes))
	for i, lane := range lanes {
		same[i] = sqlcgen.ReturnHeldRow(lane)
	}
	if err := returned(ctx, q, accountID, same); err != nil {
		return err
	}
	for _, lane := range same { // locked now
		if _, err := q.ReturnToLane(ctx, lane.LabelKey, accountID, blockedAtOnce); err != nil {
			return fmt.Errorf("bringing held jobs back that have a lane: %w", err)
		}
	}
	_, err = returnForLabels(ctx, q, accountID, room{lanes: s.mostLanes, evict: blockedAtOnce, jobs: blockedAtOnce})
	return err
}

// room bounds what jobs that are held for their label sets are returned to.
type room struct {
	lanes int64 // of the account
	evict int32 // lanes without a job, where it has as many
	jobs  int32
	full  *fullAccounts // records accounts without further room; optional
}

// returnForLabels gives the room that the account has for further lanes, if need be by evicting some, to the oldest of the jobs that are held for
// their label sets (TEN-2). It returns the label sets of those.
func returnForLabels(ctx context.Context, q *sqlcgen.Queries, accountID int64, r room) ([]string, error) {
	lanes, err := q.LanesOfAccount(ctx, accountID, r.lanes)
	searched, evicted := err == nil && lanes >= r.lanes, int64(0)
	if searched {
		evicted, err = q.EvictLanes(ctx, accountID, r.evict)
		lanes -= evicted
	}
	if err != nil {
		return nil, err
	}
	if lanes >= r.lanes {
		r.full.note(accountID, true)
		return nil, nil
	}
	rows, err := q.ReturnForLabels(ctx, accountID, int32(min(r.lanes-lanes, int64(r.jobs)))) //nolint:gosec // at most r.jobs
	if err != nil {
		return nil, fmt.Errorf("bringing jobs back whose label sets are new: %w", err)
	}
	// A search that has found fewer than it might has read all lanes, and these jobs may need what it has found.
	r.full.note(accountID, searched && evicted < int64(r.evict) && int64(len(rows)) >= r.lanes-lanes)
	keys, same := make([]string, len(rows)), make([]sqlcgen.ReturnHeldRow, len(rows))
	for i, row := range rows {
		keys[i], same[i] = row.LabelKey, sqlcgen.ReturnHeldRow(row)
	}
	return keys, returned(ctx, q, accountID, same)
}

// ReturnBlocked brings back, for every account, what its caps have room for: the pass that makes up for room that no end of
// a claim released. It reads repositories with blocked jobs only. Jobs that are blocked for their label sets come back by
// it, and by events of their account.
func (s *Store) ReturnBlocked(ctx context.Context) error {
	for after := int64(0); ; {
		accounts, err := s.queries().HeldAccounts(ctx, blockedAtOnce, after)
		if err != nil {
			return fmt.Errorf("finding blocked jobs: %w", err)
		}
		for _, account := range accounts {
			if err := s.inTx(ctx, "bringing blocked jobs back", func(q *sqlcgen.Queries) error {
				if err := s.returnLabelled(ctx, q, account); err != nil {
					return err
				}
				return s.returnBlockedOf(ctx, q, account)
			}); err != nil {
				return err
			}
		}
		if len(accounts) < blockedAtOnce {
			return nil
		}
		after = accounts[len(accounts)-1]
	}
}
