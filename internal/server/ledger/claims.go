package ledger

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// Claim reads a pod's row; a pod without one has the state ClaimNone. Reads that come together share a statement.
func (s *Store) Claim(ctx context.Context, podUID string) (dispatch.Claim, error) {
	return s.reads.do(ctx, podUID)
}

func (s *Store) readClaims(ctx context.Context, podUIDs []string) ([]dispatch.Claim, error) {
	rows, err := s.queries().Claims(ctx, podUIDs)
	if err != nil {
		return nil, err
	}
	byUID := make(map[string]dispatch.Claim, len(rows))
	for _, row := range rows {
		byUID[row.PodUid] = dispatch.Claim{
			PodUID: row.PodUid, Namespace: row.Namespace, PodName: row.PodName, Pool: row.Pool,
			State: fleet.ClaimState(row.State), Generation: row.Generation, LeaseUntil: deref(row.LeaseUntil), Sequence: row.Sequence,
			Account: dispatch.Account{
				ID: deref(row.AccountID), Login: row.Login, User: row.Kind == "User", InstallationID: deref(row.InstallationID),
				RepositoryRunners: row.Capped && s.caps,
			},
			LabelKey: row.LabelKey, Labels: row.Labels, JobID: deref(row.JobID), Repository: row.Repository, RepositoryID: row.RepositoryID,
			RunnerName: row.RunnerName, Refused: row.Refused,
			Acknowledged: row.AcknowledgedAt != nil, Proof: row.Proof,
		}
	}
	claims := make([]dispatch.Claim, len(podUIDs))
	for i, uid := range podUIDs {
		claims[i] = byUID[uid]
	}
	return claims, nil
}

// TakeOver gives the claim a new generation if it is not being minted; false: read again.
func (s *Store) TakeOver(
	ctx context.Context, podUID string, expected, next, sequence int64, lease, now time.Time,
) (bool, error) {
	n, err := s.queries().TakeOverClaim(ctx, sqlcgen.TakeOverClaimParams{
		Next: next, Sequence: sequence, LeaseUntil: &lease, PodUid: podUID, Expected: expected, Now: &now, Beyond: new(dispatch.BeyondLeases(now)),
		KnownLineage: s.knows().Lineage, KnownEpoch: s.knows().Epoch,
	})
	return n == 1, frozen(err)
}

// Registrations lists the pod's registrations that are not known to be gone and were minted before that generation.
func (s *Store) Registrations(ctx context.Context, podUID string, before int64) ([]dispatch.Registration, error) {
	rows, err := s.queries().RegistrationsOfPod(ctx, podUID, before)
	if err != nil {
		return nil, err
	}
	out := make([]dispatch.Registration, len(rows))
	for i, row := range rows {
		scope, err := fleet.ParseScope(row.Scope)
		if err != nil {
			return nil, fmt.Errorf("reading registration %s: %w", row.RunnerName, err)
		}
		out[i] = dispatch.Registration{Name: row.RunnerName, RunnerID: row.RunnerID, Scope: scope.Of(row.RepositoryID)}
	}
	return out, nil
}

// RegistrationGone notes a proof that the registration is gone, or never was.
func (s *Store) RegistrationGone(ctx context.Context, name string, now time.Time) error {
	return s.queries().RegistrationGone(ctx, &now, name)
}

// RegistrationUnfound notes that GitHub shows no such registration, whose mint was never answered: it may come yet.
func (s *Store) RegistrationUnfound(ctx context.Context, name string, now time.Time) error {
	return s.queries().RegistrationUnfound(ctx, &now, name)
}

// Intend writes down the name of a further mint; false when the generation no longer holds the claim.
func (s *Store) Intend(
	ctx context.Context, podUID string, generation int64, name string, scope fleet.Scope, now time.Time,
) (bool, error) {
	n, err := s.queries().IntendRegistration(ctx, sqlcgen.IntendRegistrationParams{
		RunnerName: name, Scope: scope.String(), RepositoryID: scope.RepositoryID, Generation: generation, Now: now, PodUid: podUID,
		KnownLineage: s.knows().Lineage, KnownEpoch: s.knows().Epoch,
	})
	return n == 1, frozen(err)
}

// claimKey names one generation of a pod's claim.
type claimKey struct {
	podUID     string
	generation int64
}

// mintAnswer is GitHub's answer to one mint, to be recorded.
type mintAnswer struct {
	claimKey
	runnerID int64
	now      time.Time
}

type mintOutcome struct {
	won bool
	err error
}

// RecordMint moves claim and job to minted; false when the generation no longer holds the claim (CLAIM-15). Mints that
// are answered together share a commit, which is most of what recording one costs.
func (s *Store) RecordMint(ctx context.Context, podUID string, generation, runnerID int64, now time.Time) (bool, error) {
	outcome, err := s.mints.do(ctx, mintAnswer{claimKey{podUID, generation}, runnerID, now})
	if err != nil {
		return false, err
	}
	return outcome.won, outcome.err
}

func (s *Store) recordMints(ctx context.Context, answers []mintAnswer) ([]mintOutcome, error) {
	recorded, err := s.recordTogether(ctx, answers)
	if err != nil && (len(answers) == 1 || ctx.Err() != nil) {
		return nil, err
	}
	outcomes := make([]mintOutcome, len(answers))
	for i, a := range answers {
		if err != nil { // one of them cannot be recorded; the others need not suffer for it
			recorded, outcomes[i].err = s.recordTogether(ctx, answers[i:i+1])
		}
		outcomes[i].won = recorded[a.claimKey]
	}
	return outcomes, nil
}

// recordTogether returns the generations that still held their claims.
func (s *Store) recordTogether(ctx context.Context, answers []mintAnswer) (map[claimKey]bool, error) {
	arg := sqlcgen.RecordMintsParams{KnownLineage: s.knows().Lineage, KnownEpoch: s.knows().Epoch}
	for _, a := range answers {
		arg.PodUids = append(arg.PodUids, a.podUID)
		arg.Keys = append(arg.Keys, a.podUID+" "+strconv.FormatInt(a.generation, 10))
		arg.RunnerIds = append(arg.RunnerIds, a.runnerID)
		arg.Now = &a.now
	}
	recorded := make(map[claimKey]bool, len(answers))
	err := s.inTx(ctx, "recording mints", func(q *sqlcgen.Queries) error {
		clear(recorded)
		rows, err := q.RecordMints(ctx, arg)
		for _, row := range rows {
			recorded[claimKey{row.PodUid, row.Generation}] = true
		}
		return err
	})
	return recorded, err
}

// EndLease lets the pod's next poll take the claim over at once.
func (s *Store) EndLease(ctx context.Context, podUID string, generation int64) error {
	_, err := s.queries().EndLease(ctx, podUID, generation)
	return err
}

// Unclaim deletes the row of a claim whose mint definitely never happened and queues its job again, in one
// transaction (CLAIM-2, CLAIM-8); false when the generation no longer holds, or a registration was minted before.
func (s *Store) Unclaim(ctx context.Context, podUID string, generation int64, now time.Time) (bool, error) {
	done := false
	err := s.inTx(ctx, "giving back a claim", func(q *sqlcgen.Queries) error {
		done = false
		claim, ok, err := found(q.LockClaim(ctx, podUID))
		if err != nil || !ok {
			return err
		}
		n, err := q.DropClaim(ctx, podUID, generation)
		if err != nil || n == 0 {
			return err
		}
		done = true
		return giveBack(ctx, q, claim, true, now)
	})
	return done && err == nil, err
}

// TakeForRelease gives a live claim that is not being minted a new generation; false: read again.
func (s *Store) TakeForRelease(
	ctx context.Context, podUID string, expected, next int64, lease, now time.Time,
) (bool, error) {
	n, err := s.queries().TakeForRelease(ctx, sqlcgen.TakeForReleaseParams{
		Next: next, LeaseUntil: &lease, PodUid: podUID, Expected: expected, Now: &now, Beyond: new(dispatch.BeyondLeases(now)),
		KnownLineage: s.knows().Lineage, KnownEpoch: s.knows().Epoch,
	})
	return n == 1, frozen(err)
}

// Release ends a claim whose registrations are all proven gone, in one transaction (CLAIM-2). The row is spent, its job is
// queued again if it has not started, and the account has its budget back if the pod has stopped. The end of a running job
// is GitHub's to report.
func (s *Store) Release(ctx context.Context, podUID string, generation int64, proof string, now time.Time) (bool, error) {
	done := false
	err := s.inTx(ctx, "releasing a claim", func(q *sqlcgen.Queries) error {
		done = false
		claim, ok, err := found(q.LockClaim(ctx, podUID))
		if err != nil || !ok {
			return err
		}
		n, err := q.ReleaseClaim(ctx, sqlcgen.ReleaseClaimParams{
			PodUid: podUID, Generation: generation, Proof: proof, Now: &now,
			KnownLineage: s.knows().Lineage, KnownEpoch: s.knows().Epoch,
		})
		if err != nil || n == 0 {
			return err
		}
		done = true
		if claim.State == string(fleet.ClaimExecuting) { // no end of its pod or of its job was reported
			if err := q.SessionsLost(ctx, &now, []string{podUID}); err != nil {
				return err
			}
		}
		if err := q.SessionReleased(ctx, &now, podUID); err != nil {
			return err
		}
		if err := giveBack(ctx, q, claim, claim.StoppedAt != nil, now); err != nil {
			return err
		}
		return q.NotifyPods(ctx, []string{podUID})
	})
	return done && err == nil, err
}

// giveBack returns the job of a claim to its lane, and the account's budget if nothing of the pod is left to charge. The limits are locked before
// the lane is fed, as a batch does it: each would wait for the other.
func giveBack(ctx context.Context, q *sqlcgen.Queries, claim sqlcgen.RunnerClaim, gone bool, now time.Time) error {
	job, err := withdraw(ctx, q, deref(claim.JobID), now)
	if err != nil {
		return err
	}
	if err := lockRoom(ctx, q, claim); err != nil {
		return err
	}
	if err := feedAgain(ctx, q, job); err != nil {
		return err
	}
	return leaveLane(ctx, q, claim, gone)
}

// requeue puts a job that was claimed or minted back into its lane; any other job stays what it is.
func requeue(ctx context.Context, q *sqlcgen.Queries, jobID int64, now time.Time) error {
	job, err := withdraw(ctx, q, jobID, now)
	if err != nil {
		return err
	}
	return feedAgain(ctx, q, job)
}

// withdraw has a job queued that was claimed or minted, for feedAgain to put into its lane; nil for any other job.
func withdraw(ctx context.Context, q *sqlcgen.Queries, jobID int64, now time.Time) (*sqlcgen.LockJobRow, error) {
	if jobID == 0 {
		return nil, nil
	}
	job, ok, err := found(q.LockJob(ctx, jobID))
	if err != nil || !ok {
		return nil, err
	}
	next, outcome := fleet.NextJobState(fleet.JobState(job.State), fleet.JobEventRelease)
	if outcome != fleet.Move {
		return nil, nil
	}
	_, err = q.MoveJob(ctx, sqlcgen.MoveJobParams{Next: string(next), Now: now, ID: job.ID, Expected: job.State})
	return &job, err
}

func feedAgain(ctx context.Context, q *sqlcgen.Queries, job *sqlcgen.LockJobRow) error {
	if job == nil {
		return nil
	}
	if err := feedLane(ctx, q, job.LabelKey, job.AccountID, job.QueuedAt); err != nil {
		return err
	}
	return q.NotifyWork(ctx, job.LabelKey)
}

// leaveLane takes an ended claim out of its lane's count. The account has its budget back, and waiting polls are woken,
// only where its pod is gone or has stopped; of any other, stopped and ForgetPod free the room (TEN-4).
func leaveLane(ctx context.Context, q *sqlcgen.Queries, claim sqlcgen.RunnerClaim, gone bool) error {
	if claim.AccountID == nil {
		return nil
	}
	if err := lockRoom(ctx, q, claim); err != nil {
		return err
	}
	if err := q.FreeRoom(ctx, gone, claim.LabelKey, *claim.AccountID); err != nil {
		return err
	}
	if claim.JobID != nil {
		if err := returnNext(ctx, q, *claim.AccountID, *claim.JobID); err != nil {
			return err
		}
	}
	if !gone {
		return nil
	}
	return q.NotifyWork(ctx, "")
}

// freeRoom gives the account the budget back that a pod took which has stopped or is gone, and wakes the polls that wait
// for it.
func freeRoom(ctx context.Context, q *sqlcgen.Queries, accountID int64, platform string) error {
	if accountID == 0 {
		return nil
	}
	if err := q.LockRoom(ctx, accountID, platform); err != nil {
		return err
	}
	if err := q.FreeRoom(ctx, true, "", accountID); err != nil {
		return err
	}
	return q.NotifyWork(ctx, "")
}

// lockRoom locks the limits that the claim counts against: before any lane.
func lockRoom(ctx context.Context, q *sqlcgen.Queries, claim sqlcgen.RunnerClaim) error {
	if claim.AccountID == nil {
		return nil
	}
	return q.LockRoom(ctx, *claim.AccountID, claim.Platform)
}

// Acknowledge notes that the pod staged the configuration of that generation.
func (s *Store) Acknowledge(ctx context.Context, podUID string, generation int64, now time.Time) (bool, error) {
	n, err := s.queries().AcknowledgeClaim(ctx, &now, podUID, generation)
	return n == 1, err
}

// AcknowledgeTermination notes that the pod's poller has terminated; false when there was nothing to note.
func (s *Store) AcknowledgeTermination(ctx context.Context, podUID string, now time.Time) (bool, error) {
	_, ok, err := found(s.queries().AcknowledgeByTermination(ctx, &now, podUID))
	return ok, err
}

// Retire inserts retired rows where there are none and returns every row's state.
func (s *Store) Retire(ctx context.Context, pods []dispatch.Pod, now time.Time) (map[string]dispatch.Claim, error) {
	var out map[string]dispatch.Claim
	err := s.inTx(ctx, "retiring pods", func(q *sqlcgen.Queries) (err error) {
		out, err = s.retire(ctx, q, pods, now)
		return err
	})
	return out, err
}

func (s *Store) retire(ctx context.Context, q *sqlcgen.Queries, pods []dispatch.Pod, now time.Time) (map[string]dispatch.Claim, error) {
	arg := sqlcgen.RetirePodsParams{
		Generation: now.UnixMicro(), Now: now, KnownLineage: s.knows().Lineage, KnownEpoch: s.knows().Epoch,
	}
	for _, pod := range pods {
		arg.PodUids = append(arg.PodUids, pod.UID)
		arg.Namespaces = append(arg.Namespaces, pod.Namespace)
		arg.PodNames = append(arg.PodNames, pod.Name)
		arg.Pools = append(arg.Pools, pod.Pool.Name)
	}
	if err := q.RetirePods(ctx, arg); err != nil {
		return nil, err
	}
	claims, err := claimStates(ctx, q, arg.PodUids)
	if err != nil {
		return nil, err
	}
	return claims, q.NotifyPods(ctx, arg.PodUids)
}

func claimStates(ctx context.Context, q *sqlcgen.Queries, podUIDs []string) (map[string]dispatch.Claim, error) {
	rows, err := q.ClaimStates(ctx, podUIDs)
	if err != nil {
		return nil, err
	}
	claims := make(map[string]dispatch.Claim, len(rows))
	for _, row := range rows {
		claims[row.PodUid] = dispatch.Claim{
			PodUID: row.PodUid, State: fleet.ClaimState(row.State), Account: dispatch.Account{ID: row.AccountID, Login: row.Login},
			Proof: row.Proof,
		}
	}
	return claims, nil
}

// PodStopped closes the pod's session, and charges its spent claim to no account from now on; a pod that was never
// dispatched has neither.
func (s *Store) PodStopped(ctx context.Context, podUID string, endedAt time.Time, exitCode *int32) error {
	return s.inTx(ctx, "closing a session", func(q *sqlcgen.Queries) error {
		if err := q.SessionPodEnded(ctx, &endedAt, exitCode, podUID); err != nil {
			return err
		}
		claim, ok, err := found(q.ClaimStopped(ctx, &endedAt, podUID))
		if err != nil || !ok || claim.State != string(fleet.ClaimSpent) {
			return err
		}
		return freeRoom(ctx, q, claim.AccountID, claim.Platform)
	})
}

// Ended lists pods whose rows are spent or retired and whose UIDs are not known, those that ended first.
func (s *Store) Ended(ctx context.Context, known []string, most int) ([]dispatch.Pod, error) {
	rows, err := s.queries().EndedPods(ctx, known, int32(most)) //nolint:gosec // a small bound
	if err != nil {
		return nil, err
	}
	pods := make([]dispatch.Pod, len(rows))
	for i, row := range rows {
		pods[i] = dispatch.Pod{
			Namespace: row.Namespace, Name: row.PodName, UID: row.PodUid,
			Pool: dispatch.PoolRef{Namespace: row.Namespace, Name: row.Pool},
		}
	}
	return pods, nil
}

// ForgetPod deletes a spent or retired row whose pod is proven gone, which is charged to no account from now
// on.
func (s *Store) ForgetPod(ctx context.Context, podUID string) (bool, error) {
	forgotten := false
	err := s.inTx(ctx, "forgetting a pod", func(q *sqlcgen.Queries) error {
		forgotten = false
		claim, ok, err := found(q.ForgetPod(ctx, podUID))
		if err != nil || !ok {
			return err
		}
		forgotten = true
		if claim.StoppedAt != nil {
			return nil
		}
		return freeRoom(ctx, q, claim.AccountID, claim.Platform)
	})
	return forgotten && err == nil, err
}
