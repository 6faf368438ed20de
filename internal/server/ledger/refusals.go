package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

const (
	// retriedAtOnce bounds the refusals of one transaction.
	retriedAtOnce = 50
	// attemptTakes is how long a job that was brought back may take until another one is.
	attemptTakes = time.Minute
	// firstUnassigned is how long a single runner that got no job is remembered.
	firstUnassigned = time.Hour
	// staleRefusal is how long after its time a refusal of an account or pool is shown that nothing has renewed.
	staleRefusal = 10 * time.Minute
)

// setRefusedAside takes the jobs of repositories that wait for what GitHub has refused out of the lanes they were met in (CLAIM-19).
func (t *batchTx) setRefusedAside(ctx context.Context, refused []dispatch.QueuedJob) error {
	if len(refused) == 0 {
		return nil
	}
	arg := sqlcgen.SetRefusedAsideParams{Namespace: t.b.Pool.Namespace, Pool: t.b.Pool.Name, Most: blockedAtOnce}
	for _, job := range refused {
		arg.LabelKeys, arg.Accounts = append(arg.LabelKeys, job.LabelKey), append(arg.Accounts, job.AccountID)
	}
	if _, err := t.q.SetRefusedAside(ctx, arg); err != nil {
		return fmt.Errorf("setting refused jobs aside: %w", err)
	}
	return nil
}

// Refuse takes back a claim whose mint GitHub has refused, and sets its job aside in the same transaction; false when the generation no longer
// holds, or a registration was minted before. The refusal stands in either case.
func (s *Store) Refuse(ctx context.Context, claim dispatch.Claim, r dispatch.Refusal, pace dispatch.Pace, now time.Time) (bool, error) {
	done := false
	err := s.inTx(ctx, "giving back a refused claim", func(q *sqlcgen.Queries) error {
		done = false
		row, ok, err := found(q.LockClaim(ctx, claim.PodUID))
		if err != nil || !ok {
			return err
		}
		n, err := q.DropClaim(ctx, claim.PodUID, claim.Generation)
		if err != nil {
			return err
		}
		trying := int64(0)
		if n == 0 { // it keeps its job, which finds out when that is over
			trying = claim.JobID
		}
		r.Attempt, r.Trying = claim.JobID, trying
		if err := noteRefusal(ctx, q, r, pace, now); err != nil || n == 0 {
			return err
		}
		done = true
		job, err := withdraw(ctx, q, deref(row.JobID), now)
		if err != nil {
			return err
		}
		if job != nil {
			if err := q.HoldForRefusal(ctx, heldFor(r), job.ID); err != nil {
				return err
			}
		}
		return leaveLane(ctx, q, row, true)
	})
	return done && err == nil, err
}

func heldFor(r dispatch.Refusal) string {
	if r.JobID != 0 {
		return blockedByOwn
	}
	return blockedByRefusal
}

// NoteRefusal notes a refusal whose claim stays.
func (s *Store) NoteRefusal(ctx context.Context, r dispatch.Refusal, pace dispatch.Pace, now time.Time) error {
	return s.inTx(ctx, "noting a refusal", func(q *sqlcgen.Queries) error { return noteRefusal(ctx, q, r, pace, now) })
}

// noteRefusal writes the refusal down. Transactions that take rows of both take refusals before jobs and lanes.
func noteRefusal(ctx context.Context, q *sqlcgen.Queries, r dispatch.Refusal, pace dispatch.Pace, now time.Time) error {
	arg := sqlcgen.UpsertRefusalParams{
		AccountID: r.AccountID, Repository: r.Repository, JobID: r.JobID, Namespace: r.Pool.Namespace, Pool: r.Pool.Name,
		Reason: string(r.Reason), Status: int32(r.Status), //nolint:gosec // an HTTP status
		Message: r.Message, Waits: true, Trying: r.Trying, Attempt: r.Attempt,
		Now: now, NextAt: r.Next,
	}
	if pace != nil {
		standing, err := q.StandingRefusal(ctx, sqlcgen.StandingRefusalParams{
			AccountID: r.AccountID, Repository: r.Repository, JobID: r.JobID, Namespace: r.Pool.Namespace, Pool: r.Pool.Name,
		})
		if err != nil {
			return err
		}
		wait := pace(standing.Failures+1, standing.Standing)
		arg.NextAt, arg.Waits = now.Add(wait), wait > 0
		if !arg.Waits {
			arg.NextAt = now.Add(firstUnassigned)
		}
	}
	return q.UpsertRefusal(ctx, arg)
}

// LiftRefusals ends what a registration for the claim has proven wrong, and brings the jobs back.
func (s *Store) LiftRefusals(ctx context.Context, claim dispatch.Claim, served func(dispatch.PoolRef) []string) error {
	return s.inTx(ctx, "lifting refusals", func(q *sqlcgen.Queries) error {
		dropped, err := q.DropRefusals(ctx, sqlcgen.DropRefusalsParams{
			AccountID: claim.Account.ID, Repository: claim.Repository, JobID: claim.JobID, Namespace: claim.Namespace, Pool: claim.Pool,
		})
		if err != nil {
			return err
		}
		pool := dispatch.PoolRef{Namespace: claim.Namespace, Name: claim.Pool}
		for _, d := range dropped {
			if d.Repository == "" || d.JobID != 0 {
				continue
			}
			if _, err := bringBack(ctx, q, claim.Account.ID, d.Repository, served(pool), blockedAtOnce); err != nil {
				return err
			}
		}
		return nil
	})
}

// RetryRefused brings back one job of each refusal that is due, and says when the next one is.
func (s *Store) RetryRefused(ctx context.Context, served func(dispatch.PoolRef) []string, now time.Time) (time.Time, error) {
	for {
		more := false
		if err := s.inTx(ctx, "trying refused jobs again", func(q *sqlcgen.Queries) error {
			due, err := q.DueRefusals(ctx, now, retriedAtOnce)
			if err != nil {
				return err
			}
			for _, r := range due {
				if err := retry(ctx, q, r, served, now); err != nil {
					return err
				}
			}
			more = len(due) == retriedAtOnce
			return nil
		}); err != nil {
			return time.Time{}, err
		}
		if !more {
			break
		}
	}
	if err := s.queries().DropStaleRefusals(ctx, now.Add(-staleRefusal)); err != nil {
		return time.Time{}, fmt.Errorf("clearing refusals that nothing renews: %w", err)
	}
	next, err := s.queries().NextRefusal(ctx)
	if err != nil || len(next) == 0 {
		return time.Time{}, err
	}
	return next[0], nil
}

// retry has one refusal tried by one job. One that no job waits for is forgotten.
func retry(ctx context.Context, q *sqlcgen.Queries, r sqlcgen.DueRefusalsRow, served func(dispatch.PoolRef) []string, now time.Time) error {
	drop := func() error {
		return q.DropRefusal(ctx, sqlcgen.DropRefusalParams{
			AccountID: r.AccountID, Repository: r.Repository, JobID: r.JobID, Namespace: r.Namespace, Pool: r.Pool,
		})
	}
	try := func(job int64) error {
		return q.TryRefusal(ctx, sqlcgen.TryRefusalParams{
			Trying: job, NextAt: now.Add(attemptTakes),
			AccountID: r.AccountID, Repository: r.Repository, JobID: r.JobID, Namespace: r.Namespace, Pool: r.Pool,
		})
	}
	if !r.Waits {
		return drop()
	}
	keys := served(dispatch.PoolRef{Namespace: r.Namespace, Name: r.Pool})
	switch outcome, err := tried(ctx, q, r); {
	case err != nil:
		return err
	case outcome == dispatch.AttemptOpen:
		return try(r.Trying)
	case outcome == dispatch.AttemptWorked:
		if err := drop(); err != nil {
			return err
		}
		_, err := bringBack(ctx, q, r.AccountID, r.Repository, keys, blockedAtOnce)
		return err
	}
	var back []int64
	var err error
	if r.JobID != 0 {
		back, err = bringBackJob(ctx, q, r.AccountID, r.JobID)
	} else {
		back, err = bringBack(ctx, q, r.AccountID, r.Repository, keys, 1)
	}
	switch {
	case err != nil:
		return err
	case len(back) == 0:
		return drop()
	}
	return try(back[0])
}

// tried says what became of the job that was brought back last.
func tried(ctx context.Context, q *sqlcgen.Queries, r sqlcgen.DueRefusalsRow) (dispatch.Attempt, error) {
	if r.Trying == 0 {
		return dispatch.AttemptOver, nil
	}
	job, ok, err := found(q.TriedJob(ctx, r.Trying))
	if err != nil || !ok {
		return dispatch.AttemptOver, err
	}
	return dispatch.AttemptOf(dispatch.RefusalReason(r.Reason), fleet.JobState(job.State), job.Held != "", job.StartedAt != nil), nil
}

// bringBack unblocks the oldest of a repository's jobs that wait for a refusal: those with these label sets, or any if none
// is given. It returns their ids.
func bringBack(ctx context.Context, q *sqlcgen.Queries, accountID int64, repository string, keys []string, most int32) ([]int64, error) {
	rows, err := q.ReturnRefused(ctx, sqlcgen.ReturnRefusedParams{
		AccountID: accountID, Repository: repository, AnyLabels: len(keys) == 0, LabelKeys: orEmpty(keys), Most: most,
	})
	if err != nil {
		return nil, fmt.Errorf("bringing back jobs of %s that GitHub has refused: %w", repository, err)
	}
	ids, back := make([]int64, len(rows)), make([]sqlcgen.ReturnHeldRow, len(rows))
	for i, row := range rows {
		ids[i], back[i] = row.ID, sqlcgen.ReturnHeldRow{LabelKey: row.LabelKey, QueuedAt: row.QueuedAt}
	}
	return ids, returned(ctx, q, accountID, back)
}

// bringBackJob unblocks a job that waits for a refusal of its own.
func bringBackJob(ctx context.Context, q *sqlcgen.Queries, accountID, job int64) ([]int64, error) {
	rows, err := q.ReturnRefusedJob(ctx, job)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return []int64{job}, returned(ctx, q, accountID, []sqlcgen.ReturnHeldRow{{LabelKey: rows[0].LabelKey, QueuedAt: rows[0].QueuedAt}})
}

// Refusals lists those that jobs wait for, those that have stood longest first.
func (s *Store) Refusals(ctx context.Context, most int) ([]dispatch.Refusal, error) {
	rows, err := s.queries().AllRefusals(ctx, int32(most)) //nolint:gosec // a small bound
	if err != nil {
		return nil, fmt.Errorf("reading what GitHub refuses: %w", err)
	}
	out := make([]dispatch.Refusal, len(rows))
	for i, row := range rows {
		out[i] = refusalOf(sqlcgen.Refusal{
			AccountID: row.AccountID, Repository: row.Repository, JobID: row.JobID, Namespace: row.Namespace, Pool: row.Pool, Reason: row.Reason,
			Status: row.Status, Message: row.Message, Failures: row.Failures, Waits: row.Waits, Trying: row.Trying, Since: row.Since, NextAt: row.NextAt,
		})
		out[i].Login = row.Login
	}
	return out, nil
}

// HastenRefusals makes what jobs of the account wait for due.
func (s *Store) HastenRefusals(ctx context.Context, accountID int64, now time.Time) error {
	return s.queries().HastenRefusals(ctx, now, accountID)
}

func refusalOf(r sqlcgen.Refusal) dispatch.Refusal {
	return dispatch.Refusal{
		AccountID: r.AccountID, Repository: r.Repository, Pool: dispatch.PoolRef{Namespace: r.Namespace, Name: r.Pool}, JobID: r.JobID,
		Reason: dispatch.RefusalReason(r.Reason), Status: int(r.Status), Message: r.Message, Trying: r.Trying,
		Failures: r.Failures, Since: r.Since, Next: r.NextAt, Waits: r.Waits,
	}
}

// shownRefusals bounds how many refusals of an account are shown.
const shownRefusals = 100

func refusalsOf(ctx context.Context, q *sqlcgen.Queries, account adminapi.Account) ([]adminapi.Refusal, error) {
	rows, err := q.RefusalsOfAccount(ctx, account.ID, shownRefusals)
	if err != nil {
		return nil, fmt.Errorf("reading what GitHub refuses of an account: %w", err)
	}
	var out []adminapi.Refusal
	for _, row := range rows {
		r := refusalOf(row)
		r.Login = account.Login
		shown := adminapi.Refusal{
			Repository: r.Repository, JobID: r.JobID, Reason: string(r.Reason), Status: r.Status, Message: r.Message, Failures: r.Failures,
			Since: r.Since, NextAttempt: r.Next, Sentence: dispatch.RefusalText([]dispatch.Refusal{r}),
		}
		if r.Pool.Name != "" {
			shown.Pool = r.Pool.Namespace + "/" + r.Pool.Name
		}
		out = append(out, shown)
	}
	return out, nil
}
