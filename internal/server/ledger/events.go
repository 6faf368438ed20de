package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// recordDelivery reports whether the delivery is new. An event without a GUID is no delivery, but was read at GitHub: it is always new, and
// the tables make it safe to repeat.
func recordDelivery(ctx context.Context, q *sqlcgen.Queries, d dispatch.Delivery) (bool, error) {
	if d.GUID == "" {
		return true, nil
	}
	n, err := q.RecordDelivery(ctx, d.GUID, d.Event, d.At)
	return n == 1, err
}

// SetLimits sets an account's budget on one platform.
func (s *Store) SetLimits(ctx context.Context, accountID int64, platform fleet.Platform, l fleet.Limits) error {
	return s.inTx(ctx, "setting limits", func(q *sqlcgen.Queries) error {
		if err := q.SetLimits(ctx, sqlcgen.SetLimitsParams{
			AccountID: accountID, Platform: string(platform), MilliCpu: l.MilliCPU, MemoryMb: l.MemoryMB, Jobs: l.Jobs,
			RepositoryJobs: l.JobsPerRepository,
		}); err != nil {
			return err
		}
		if err := q.UnparkAccount(ctx, accountID); err != nil {
			return err
		}
		return q.NotifyWork(ctx, "")
	})
}

// RecordJob applies a workflow_job event: one transaction, decided by dispatch.Resolve.
func (s *Store) RecordJob(ctx context.Context, d dispatch.Delivery, ev dispatch.JobEvent) (dispatch.Recorded, error) {
	return s.recordJob(ctx, d, ev, s.inTx)
}

// recordJob is RecordJob in a transaction of the caller's making.
func (s *Store) recordJob(
	ctx context.Context, d dispatch.Delivery, ev dispatch.JobEvent,
	in func(ctx context.Context, doing string, fn func(q *sqlcgen.Queries) error) error,
) (dispatch.Recorded, error) {
	var rec dispatch.Recorded
	var it heard
	key := dispatch.LabelKey(ev.Labels)
	again := false
	err := in(ctx, "recording a job", func(q *sqlcgen.Queries) error {
		rec = dispatch.Recorded{}
		if again {
			s.forget(key) // it may have been removed since it was stored
		}
		again = true
		fresh, err := recordDelivery(ctx, q, d)
		if err != nil || !fresh {
			return err
		}
		rec.Fresh = true
		if err := s.ensureParents(ctx, q, ev, key, d.At); err != nil {
			return err
		}
		if it, err = s.noteRepository(ctx, q, ev, d); err != nil {
			return err
		}
		e := eventTx{q: q, ev: ev, key: key, now: d.At, rec: &rec, mostLanes: s.mostLanes, full: &s.full}
		e.ev.Repository = it.name
		if err := e.apply(ctx); err != nil || it.fresh {
			return err
		}
		return follow(ctx, q, ev.Account.ID, fleet.Repository{Name: it.name, ID: ev.RepositoryID}, it.former)
	})
	if err == nil {
		s.remember(key)
		s.rememberRepository(ev, it, d.At)
	}
	return rec, err
}

// mostLabelSets bounds what a replica remembers of them: there are workflows that make up a label for each run. One that is
// forgotten is stored once more, which changes nothing.
const mostLabelSets = 10_000

func (s *Store) remember(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.labelSets) >= mostLabelSets && !s.labelSets[key] {
		clear(s.labelSets)
	}
	s.labelSets[key] = true
}

func (s *Store) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.labelSets, key)
}

func (s *Store) remembers(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.labelSets[key]
}

// eventTx is one event being applied in its transaction.
type eventTx struct {
	q   *sqlcgen.Queries
	ev  dispatch.JobEvent
	key string
	now time.Time
	rec *dispatch.Recorded

	mostLanes int64 // of one account
	full      *fullAccounts

	claims map[string]sqlcgen.RunnerClaim
	job    sqlcgen.LockJobRow // as stored; zero when there is no row
	facts  dispatch.Facts
}

func (e *eventTx) apply(ctx context.Context) error {
	for {
		if err := e.observe(ctx); err != nil {
			return err
		}
		change := dispatch.Resolve(e.ev, e.facts)
		e.rec.Outcome = change.Outcome
		moved, err := e.moveJob(ctx, change)
		if err != nil {
			return err
		}
		if moved {
			if err := e.identify(ctx); err != nil {
				return err
			}
			if err := e.moveClaims(ctx, change); err != nil {
				return err
			}
			if err := e.heardOf(ctx, change); err != nil {
				return err
			}
			if err := e.parkIfLast(ctx, change); err != nil {
				return err
			}
			e.rec.Ended = e.ended(change)
			return nil
		}
		// Another event of the same job was inserted between the look and the insert: look again.
	}
}

// observe locks what the event can touch: claims first, then its job.
func (e *eventTx) observe(ctx context.Context) error {
	e.claims = map[string]sqlcgen.RunnerClaim{}
	e.facts = dispatch.Facts{}
	if e.ev.Kind != fleet.JobEventQueued && e.ev.Kind != fleet.JobEventWaiting {
		rows, err := e.q.LockClaimsOfEvent(ctx, e.ev.RunnerName, e.ev.JobID)
		if err != nil {
			return err
		}
		for _, row := range rows {
			e.claims[row.PodUid] = row
			facts := &dispatch.ClaimFacts{
				PodUID: row.PodUid, AccountID: deref(row.AccountID), State: fleet.ClaimState(row.State), JobID: deref(row.JobID),
			}
			if e.ev.RunnerName != "" && row.RunnerName == e.ev.RunnerName {
				e.facts.ByRunner = facts
			}
			if facts.State.Live() && facts.JobID == e.ev.JobID {
				e.facts.ByJob = facts
			}
		}
	}
	var ok bool
	var err error
	if e.job, ok, err = found(e.q.LockJob(ctx, e.ev.JobID)); err != nil || ok {
		e.facts.State = fleet.JobState(e.job.State)
		return err
	}
	e.facts.Buried, err = e.q.TombstoneExists(ctx, e.ev.JobID) // CLAIM-4
	return err
}

// moveJob writes the event's job; false when its row appeared in between.
func (e *eventTx) moveJob(ctx context.Context, change dispatch.Change) (bool, error) {
	if change.Outcome != fleet.Move {
		return true, nil
	}
	var n int64
	var err error
	switch {
	case e.facts.State == fleet.JobAbsent:
		n, err = e.insertJob(ctx, change.State)
	case change.State == fleet.JobExecuting:
		n, err = e.q.StartJob(ctx, sqlcgen.StartJobParams{
			RunnerName: e.ev.RunnerName, StartedAt: e.startedAt(), Now: e.now, ID: e.ev.JobID, Expected: string(e.facts.State),
		})
	case change.State.Terminal():
		n, err = e.q.EndJob(ctx, sqlcgen.EndJobParams{
			Next: string(change.State), Conclusion: e.ev.Conclusion, CompletedAt: e.completedAt(), RunnerName: e.ev.RunnerName,
			StartedAt: nonZero(e.ev.StartedAt), Now: e.now, ID: e.ev.JobID, Expected: string(e.facts.State),
		})
	default:
		n, err = e.q.MoveJob(ctx, sqlcgen.MoveJobParams{
			Next: string(change.State), Now: e.now, ID: e.ev.JobID, Expected: string(e.facts.State),
		})
	}
	if err != nil || n == 0 {
		return false, err
	}
	if change.State.Terminal() {
		err = e.q.InsertTombstone(ctx, e.ev.JobID, e.ev.Conclusion, *e.completedAt())
	}
	if err == nil && change.Spend != "" { // its end frees room, behind what this feeds
		err = lockRoom(ctx, e.q, e.claims[change.Spend])
	}
	if err == nil && e.facts.State == fleet.JobQueued { // it has left the queue, and made room there for one that is blocked
		err = returnNext(ctx, e.q, e.job.AccountID, e.ev.JobID)
	}
	if err == nil && change.State == fleet.JobQueued {
		e.rec.Queued = true
		err = e.feed(ctx)
	}
	return true, err
}

// parkIfLast parks the lane of a job that has left the queue without a batch, if it was the last one there. It comes after the claims, whose
// end locks the account's limits first, as a batch does.
func (e *eventTx) parkIfLast(ctx context.Context, change dispatch.Change) error {
	if change.Outcome != fleet.Move || e.facts.State != fleet.JobQueued {
		return nil
	}
	return parkEmptied(ctx, e.q, lane{e.job.LabelKey, e.job.AccountID})
}

// identify fills in which repository a job is of that an earlier version has inserted.
func (e *eventTx) identify(ctx context.Context) error {
	if e.job.ID == 0 || e.job.RepositoryID != 0 || e.ev.RepositoryID == 0 || e.job.AccountID != e.ev.Account.ID {
		return nil
	}
	return e.q.IdentifyJob(ctx, e.ev.RepositoryID, e.ev.Repository, e.ev.JobID)
}

func (e *eventTx) insertJob(ctx context.Context, state fleet.JobState) (int64, error) {
	arg := sqlcgen.InsertJobParams{
		ID: e.ev.JobID, AccountID: e.ev.Account.ID, Repository: e.ev.Repository, RunID: e.ev.RunID,
		RunAttempt: e.ev.RunAttempt, Name: e.ev.Name, Workflow: e.ev.Workflow, HeadBranch: e.ev.HeadBranch,
		HeadSha: e.ev.HeadSHA, LabelKey: e.key, State: string(state), RunnerName: e.ev.RunnerName,
		QueuedAt: e.queuedAt(), Now: e.now, RepositoryID: e.ev.RepositoryID,
	}
	if state == fleet.JobExecuting {
		arg.StartedAt = e.startedAt()
	}
	if state.Terminal() {
		arg.Conclusion, arg.StartedAt, arg.CompletedAt = e.ev.Conclusion, nonZero(e.ev.StartedAt), e.completedAt()
	}
	return e.q.InsertJob(ctx, arg)
}

func (e *eventTx) feed(ctx context.Context) error {
	key, account, queuedAt := e.key, e.ev.Account.ID, e.queuedAt()
	if e.job.ID != 0 { // the lane that its row is in, whatever names this event has
		key, account, queuedAt = e.job.LabelKey, e.job.AccountID, e.job.QueuedAt
	}
	if e.facts.State == fleet.JobWaiting { // TEN-7
		queuedAt = e.now
	}
	fed, more, err := feed(ctx, e.q, sqlcgen.FeedLaneParams{LabelKey: key, AccountID: account, QueuedAt: queuedAt, Most: e.mostLanes})
	if err != nil {
		return err
	}
	if more { // TEN-7: those that are left are older
		if err := e.q.HoldForLabels(ctx, e.ev.JobID); err != nil {
			return err
		}
		e.rec.Queued = false
	}
	if fed {
		return e.q.NotifyWork(ctx, key)
	}
	e.rec.Queued = false
	if err := e.q.HoldForLabels(ctx, e.ev.JobID); err != nil || e.full.has(account) { // TEN-2: behind those that are held already
		return err
	}
	keys, err := returnForLabels(ctx, e.q, account, room{lanes: e.mostLanes, evict: evictedAtOnce, jobs: returnedAtOnce, full: e.full})
	e.rec.Queued = slices.Contains(keys, key)
	return err
}

// moveClaims applies what the event means for our runners.
func (e *eventTx) moveClaims(ctx context.Context, change dispatch.Change) error {
	if change.Unbind != "" { // before another claim is bound to the same job
		if _, err := e.q.BindClaim(ctx, nil, change.Unbind); err != nil {
			return err
		}
	}
	if change.Execute != "" {
		if err := e.execute(ctx, change.Execute); err != nil {
			return err
		}
	}
	if change.Spend != "" {
		if err := e.spend(ctx, change.Spend); err != nil {
			return err
		}
	}
	if change.Requeue != 0 {
		e.rec.Displaced = change.Requeue
		if err := requeue(ctx, e.q, change.Requeue, e.now); err != nil {
			return err
		}
	}
	if change.Unbind != "" {
		if err := takeNext(ctx, e.q, e.claims[change.Unbind], e.now); err != nil {
			return err
		}
	}
	if change.Adopt != "" {
		return e.requestAdoption(ctx, change.Adopt)
	}
	return nil
}

// heardOf notes which job a runner of ours has run whose claim is over, or whose pod is forgotten: usage counts it.
func (e *eventTx) heardOf(ctx context.Context, change dispatch.Change) error {
	podUID, ours := runnerpod.PodUID(e.ev.RunnerName)
	if !ours || change.Execute != "" || change.Spend != "" || e.ev.Kind != fleet.JobEventStarted && e.ev.Kind != fleet.JobEventCompleted {
		return nil
	}
	arg := sqlcgen.SessionHeardOfParams{
		JobID: e.ev.JobID, Repository: e.ev.Repository, JobStartedAt: nonZero(e.ev.StartedAt), PodUid: podUID, RunnerName: e.ev.RunnerName,
		AccountID: e.ev.Account.ID,
	}
	if e.ev.Kind == fleet.JobEventCompleted {
		arg.JobEndedAt = e.completedAt()
	} else {
		arg.JobStartedAt = e.startedAt()
	}
	return e.q.SessionHeardOf(ctx, arg)
}

func (e *eventTx) execute(ctx context.Context, podUID string) error {
	claim := e.claims[podUID]
	if _, err := e.q.ExecuteClaim(ctx, sqlcgen.ExecuteClaimParams{
		JobID: &e.ev.JobID, Now: &e.now, PodUid: podUID, Expected: claim.State,
	}); err != nil {
		return err
	}
	if claim.State != string(fleet.ClaimExecuting) {
		e.rec.Started = e.started(claim)
	}
	if err := e.q.RegistrationAlive(ctx, e.ev.RunnerID, e.ev.RunnerName); err != nil {
		return err
	}
	return e.q.SessionStarted(ctx, sqlcgen.SessionStartedParams{
		JobID: e.ev.JobID, Repository: e.ev.Repository, Now: e.now, JobStartedAt: e.startedAt(), PodUid: podUID,
	})
}

// started says how the job got to the runner that it was given to just now.
func (e *eventTx) started(claim sqlcgen.RunnerClaim) *dispatch.Started {
	times := fleet.JobTimes{
		Queued: e.queuedAt(), Received: e.now, Claimed: claim.ClaimedAt, Minted: deref(claim.MintedAt), Acknowledged: deref(claim.AcknowledgedAt),
		Executing: *e.startedAt(),
	}
	if e.job.ID != 0 {
		times.Queued, times.Received, times.Approved = e.job.CreatedAt, deref(e.job.ReceivedAt), deref(e.job.ApprovedAt)
	}
	if times.Acknowledged.IsZero() { // as ExecuteClaim has it: who runs a job has its configuration
		times.Acknowledged = e.now
	}
	return &dispatch.Started{Pool: claim.Pool, Times: times}
}

// ended returns the notification that a job is over for which a pod of ours was claimed.
func (e *eventTx) ended(change dispatch.Change) *dispatch.Ended {
	if change.Outcome != fleet.Move || !change.State.Terminal() {
		return nil
	}
	if _, ours := runnerpod.PodUID(e.ev.RunnerName); change.Spend == "" && e.facts.ByJob == nil && !ours {
		return nil // no runner of ours took part
	}
	ended := &dispatch.Ended{Times: fleet.JobTimes{Queued: e.queuedAt(), Executing: e.ev.StartedAt, Ended: *e.completedAt()}}
	if e.job.ID != 0 {
		ended.Times.Queued = e.job.CreatedAt
	}
	if change.State == fleet.JobCancelled && change.Spend == "" {
		ended.Times.Executing = time.Time{} // GitHub names a beginning of jobs that never began, too
	}
	for _, uid := range []string{change.Spend, change.Unbind} {
		if uid != "" {
			ended.Pool = e.claims[uid].Pool
			break
		}
	}
	return ended
}

// spend ends the claim whose runner GitHub says has completed a job: its single shot is used, and GitHub itself has
// removed the registration.
func (e *eventTx) spend(ctx context.Context, podUID string) error {
	claim := e.claims[podUID]
	if claim.State != string(fleet.ClaimExecuting) { // GitHub's words come in any order
		e.rec.Started = e.started(claim)
	}
	if _, err := e.q.BindClaim(ctx, &e.ev.JobID, podUID); err != nil {
		return err
	}
	if _, err := e.q.SpendClaim(ctx, &e.now, podUID, claim.State); err != nil {
		return err
	}
	if err := e.q.RegistrationGone(ctx, &e.now, e.ev.RunnerName); err != nil {
		return err
	}
	if err := e.q.SessionStarted(ctx, sqlcgen.SessionStartedParams{
		JobID: e.ev.JobID, Repository: e.ev.Repository, Now: e.now, JobStartedAt: nonZero(e.ev.StartedAt), PodUid: podUID,
	}); err != nil {
		return err
	}
	if err := e.q.SessionJobEnded(ctx, sqlcgen.SessionJobEndedParams{
		JobID: e.ev.JobID, JobStartedAt: nonZero(e.ev.StartedAt), JobEndedAt: e.completedAt(), PodUid: podUID,
	}); err != nil {
		return err
	}
	return leaveLane(ctx, e.q, claim, claim.StoppedAt != nil)
}

// takeNext gives a live claim whose own job runs elsewhere the oldest queued job of its lane, which is usually the
// one that the same event put back: two runners that swapped jobs need no third mint.
func takeNext(ctx context.Context, q *sqlcgen.Queries, claim sqlcgen.RunnerClaim, now time.Time) error {
	if claim.State == string(fleet.ClaimExecuting) || claim.AccountID == nil {
		return nil
	}
	job, ok, err := found(q.OldestInLane(ctx, claim.LabelKey, *claim.AccountID, claim.RunnerName))
	if err != nil || !ok {
		return err
	}
	event := fleet.JobEventTransfer
	if claim.State == string(fleet.ClaimClaimed) {
		event = fleet.JobEventClaim
	}
	next, _ := fleet.NextJobState(fleet.JobQueued, event)
	n, err := q.MoveJob(ctx, sqlcgen.MoveJobParams{Next: string(next), Now: now, ID: job.ID, Expected: string(fleet.JobQueued)})
	if err != nil || n == 0 {
		return err
	}
	_, err = q.BindClaim(ctx, &job.ID, claim.PodUid)
	return err
}

func (e *eventTx) queuedAt() time.Time {
	if e.ev.QueuedAt.IsZero() {
		return e.now
	}
	return e.ev.QueuedAt
}

func (e *eventTx) startedAt() *time.Time {
	if e.ev.StartedAt.IsZero() {
		return &e.now
	}
	return &e.ev.StartedAt
}

func (e *eventTx) completedAt() *time.Time {
	if e.ev.CompletedAt.IsZero() {
		return &e.now
	}
	return &e.ev.CompletedAt
}

func nonZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
