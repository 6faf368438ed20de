package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// requestAdoption notes a runner that GitHub named and no live claim explains (CLAIM-13).
func (e *eventTx) requestAdoption(ctx context.Context, podUID string) error {
	scope := fleet.Scope{Owner: e.ev.Account.Login}
	if reg, ok, err := found(e.q.Registration(ctx, e.ev.RunnerName)); err != nil {
		return err
	} else if ok {
		if reg.AccountID != e.ev.Account.ID { // CLAIM-13
			e.rec.Foreign = true
			return nil
		}
		if scope, err = fleet.ParseScope(reg.Scope); err != nil {
			return err
		}
		scope = scope.Of(reg.RepositoryID)
	} else if e.ev.Account.User {
		if repo, err := fleet.ParseScope(e.ev.Repository); err == nil {
			scope = repo.Of(e.ev.RepositoryID)
		}
	}
	if err := e.q.RequestAdoption(ctx, sqlcgen.RequestAdoptionParams{
		RunnerName: e.ev.RunnerName, RunnerID: e.ev.RunnerID, PodUid: podUID, AccountID: e.ev.Account.ID,
		JobID: e.ev.JobID, Scope: scope.String(), RepositoryID: scope.RepositoryID, Now: e.now,
	}); err != nil {
		return err
	}
	e.rec.Adoption = true
	return e.q.NotifyAdoption(ctx)
}

// DueAdoptions takes the adoptions that are due and moves each on to later.
func (s *Store) DueAdoptions(ctx context.Context, now, later time.Time) ([]dispatch.Adoption, error) {
	rows, err := s.queries().DueAdoptions(ctx, later, now, dispatch.MaxAdoptions)
	if err != nil {
		return nil, err
	}
	out := make([]dispatch.Adoption, 0, len(rows))
	for _, row := range rows {
		account, ok, err := found(s.queries().AccountByID(ctx, row.AccountID))
		if err != nil {
			return nil, err
		}
		scope, bad := fleet.ParseScope(row.Scope)
		if !ok || bad != nil { // it can never be resolved, and must not block the others
			if err := s.CloseAdoption(ctx, row.RunnerName); err != nil {
				return nil, err
			}
			continue
		}
		out = append(out, dispatch.Adoption{
			RunnerName: row.RunnerName, RunnerID: row.RunnerID, PodUID: row.PodUid, JobID: row.JobID, Scope: scope.Of(row.RepositoryID),
			Attempts: row.Attempts, Account: dispatch.Account{
				ID: account.ID, Login: account.Login, User: account.Kind == "User",
				InstallationID: deref(account.InstallationID),
			},
		})
	}
	return out, nil
}

// CloseAdoption forgets an adoption that is decided.
func (s *Store) CloseAdoption(ctx context.Context, runnerName string) error {
	return s.queries().CloseAdoption(ctx, runnerName)
}

// errVoid aborts the transaction: the pod already has a live claim, or has worked for another account.
var errVoid = errors.New("nothing to do")

// Adopt makes a pod busy again whose runner GitHub confirms to be running (CLAIM-13).
func (s *Store) Adopt(
	ctx context.Context, a dispatch.Adoption, pod dispatch.Pod, pool dispatch.Pool, now time.Time,
) (bool, error) {
	adopted := false
	err := s.inTx(ctx, "adopting a runner", func(q *sqlcgen.Queries) error {
		adopted = false
		if a.JobID == 0 {
			job, known, err := found(q.JobOfRunner(ctx, a.RunnerName, a.Account.ID))
			if err != nil {
				return err
			}
			if !known {
				adopted, err = s.adoptWithoutJob(ctx, q, a, pod, pool, now)
				return err
			}
			a.JobID = job
		}
		if err := admit(ctx, q, a, pod); err != nil {
			return err
		}
		other, claimed, err := found(q.LiveClaimOfJob(ctx, a.JobID))
		if err != nil {
			return err
		}
		job, ok, err := found(q.LockJob(ctx, a.JobID))
		if err != nil || !ok || fleet.JobState(job.State).Terminal() {
			return err // late: the job has ended, no claim is revived
		}
		if claimed && other.PodUid != pod.UID {
			if _, err := q.BindClaim(ctx, nil, other.PodUid); err != nil {
				return err
			}
		}
		var n int64
		n, err = q.AdoptClaim(ctx, adoptParams(a, pod, pool, job.LabelKey, now))
		if err != nil {
			return err
		}
		if n == 0 {
			return errVoid // with what was done before
		}
		adopted = true
		if claimed && other.PodUid != pod.UID {
			if err := takeNext(ctx, q, other, now); err != nil {
				return err
			}
		}
		return chargeAdopted(ctx, q, a, job, pod, now)
	})
	if errors.Is(err, errVoid) {
		return false, nil
	}
	return adopted && err == nil, err
}

// admit reads what is known of whose runner it is, and is dispatch.ErrForeignRunner when it is another's.
func admit(ctx context.Context, q *sqlcgen.Queries, a dispatch.Adoption, pod dispatch.Pod) error {
	known := dispatch.Registrant{LabelAccount: pod.OwnerID}
	claims, err := q.Claims(ctx, []string{pod.UID})
	if err != nil {
		return err
	}
	for _, claim := range claims {
		known.ClaimAccount = deref(claim.AccountID)
	}
	reg, ok, err := found(q.Registration(ctx, a.RunnerName))
	if err != nil {
		return err
	}
	if ok {
		known.RegisteredPod, known.RegisteredAccount = reg.PodUid, reg.AccountID
	}
	return known.Admit(a)
}

func adoptParams(
	a dispatch.Adoption, pod dispatch.Pod, pool dispatch.Pool, labelKey string, now time.Time,
) sqlcgen.AdoptClaimParams {
	arg := sqlcgen.AdoptClaimParams{
		PodUid: pod.UID, Namespace: pod.Namespace, PodName: pod.Name, Pool: pod.Pool.Name,
		Generation: dispatch.NextGeneration(0, now), AccountID: &a.Account.ID, Platform: string(pool.Platform),
		MilliCpu: pool.Shape.MilliCPU, MemoryMb: pool.Shape.MemoryMB, LabelKey: labelKey, RunnerName: a.RunnerName, Now: now,
	}
	if a.JobID != 0 {
		arg.JobID = &a.JobID
	}
	return arg
}

// adoptWithoutJob is for a runner that GitHub shows to be busy with an unknown job: its account is charged, and the job is
// bound when GitHub names it. The account may be as unknown here as the job.
func (s *Store) adoptWithoutJob(
	ctx context.Context, q *sqlcgen.Queries, a dispatch.Adoption, pod dispatch.Pod, pool dispatch.Pool, now time.Time,
) (bool, error) {
	if err := admit(ctx, q, a, pod); err != nil {
		return false, err
	}
	if over, err := hadItsJob(ctx, q, a.RunnerName, pod.UID); err != nil || over {
		return false, err // CLAIM-13: what was read of it at GitHub is late
	}
	if err := s.ensureAccount(ctx, q, a.Account, "runner "+a.RunnerName, now); err != nil {
		return false, err
	}
	n, err := q.AdoptClaim(ctx, adoptParams(a, pod, pool, "", now))
	if err != nil || n == 0 {
		return false, err
	}
	if err := ensureAlive(ctx, q, a, pod, now); err != nil {
		return false, err
	}
	return true, q.SessionFound(ctx, now, pod.UID)
}

// hadItsJob reports whether GitHub has said that the runner's one job has ended: then it is never busy again.
func hadItsJob(ctx context.Context, q *sqlcgen.Queries, runnerName, podUID string) (bool, error) {
	claim, exists, err := found(q.LockClaim(ctx, podUID))
	if err != nil || !exists || claim.RunnerName != runnerName || claim.JobID == nil {
		return false, err
	}
	job, exists, err := found(q.Job(ctx, *claim.JobID))
	return exists && fleet.JobState(job.State).Terminal() && job.RunnerName == runnerName, err
}

func ensureAlive(ctx context.Context, q *sqlcgen.Queries, a dispatch.Adoption, pod dispatch.Pod, now time.Time) error {
	return q.EnsureRegistration(ctx, sqlcgen.EnsureRegistrationParams{
		RunnerName: a.RunnerName, PodUid: pod.UID, AccountID: a.Account.ID, Scope: a.Scope.String(), RepositoryID: a.Scope.RepositoryID,
		Generation: dispatch.NextGeneration(0, now), RunnerID: a.RunnerID, Now: now,
	})
}

func chargeAdopted(
	ctx context.Context, q *sqlcgen.Queries, a dispatch.Adoption, job sqlcgen.LockJobRow, pod dispatch.Pod, now time.Time,
) error {
	if _, outcome := fleet.NextJobState(fleet.JobState(job.State), fleet.JobEventStarted); outcome == fleet.Move {
		if _, err := q.StartJob(ctx, sqlcgen.StartJobParams{
			RunnerName: a.RunnerName, StartedAt: &now, Now: now, ID: job.ID, Expected: job.State,
		}); err != nil {
			return err
		}
	}
	if err := ensureAlive(ctx, q, a, pod, now); err != nil {
		return err
	}
	if err := q.ChargeLane(ctx, job.LabelKey, a.Account.ID, now); err != nil {
		return err
	}
	return q.SessionStarted(ctx, sqlcgen.SessionStartedParams{
		JobID: job.ID, Repository: job.Repository, Now: now, JobStartedAt: &now, PodUid: pod.UID,
	})
}
