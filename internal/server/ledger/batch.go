package ledger

import (
	"context"
	"slices"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
)

// LabelSetsFrom lists label sets of lanes by key, in the order of bytes, from that one on.
func (s *Store) LabelSetsFrom(ctx context.Context, start string, most int32) ([]string, error) {
	return s.queries().LabelSetsFrom(ctx, most, start)
}

// LabelSetsAmong returns those of the keys that have a lane.
func (s *Store) LabelSetsAmong(ctx context.Context, labelKeys []string) ([]string, error) {
	return s.queries().LabelSetsAmong(ctx, labelKeys)
}

// UnparkLabelSets unparks lanes that are parked at their limit, so that they are read again.
func (s *Store) UnparkLabelSets(ctx context.Context, labelKeys []string) error {
	return s.queries().UnparkLabelSets(ctx, labelKeys)
}

// ClaimBatch pairs queued jobs with waiting polls in one transaction. Its cost does not grow with the backlog, nor
// with accounts that are at their limit: their lanes are parked.
func (s *Store) ClaimBatch(ctx context.Context, b dispatch.Batch) (dispatch.BatchResult, error) {
	var out dispatch.BatchResult
	slots := slotsInHand{reserved: map[int64]int{}, giveBack: b.Return}
	err := s.inTx(ctx, "claiming a batch", func(q *sqlcgen.Queries) error {
		slots.settle(nil) // those of an attempt that failed, or whose commit collided
		out = dispatch.BatchResult{}
		tx := batchTx{s: s, q: q, b: b, known: s.knows(), out: &out, reserved: slots.reserved}
		return tx.run(ctx)
	})
	if err != nil {
		out = dispatch.BatchResult{} // a statement failed, or the commit did
	}
	slots.settle(out.Claims)
	return out, err
}

// slotsInHand are the mint slots that a batch has reserved (CLAIM-14). Only the transaction knows for which accounts, so it
// reserves them, although that changes the replica's own count and is not rolled back. Each attempt therefore begins with none
// in hand, and after the last one every slot belongs to a committed claim or is given back.
type slotsInHand struct {
	reserved map[int64]int // by account
	giveBack func(accountID int64, slots int)
}

// settle leaves one slot with each of these claims and gives the others back.
func (s *slotsInHand) settle(claims []dispatch.Claim) {
	for _, claim := range claims {
		s.reserved[claim.Account.ID]--
	}
	for account, n := range s.reserved {
		s.giveBack(account, n)
	}
	clear(s.reserved)
}

type batchTx struct {
	s        *Store
	q        *sqlcgen.Queries
	b        dispatch.Batch
	known    epoch.Mark
	out      *dispatch.BatchResult
	reserved map[int64]int // mint slots of this attempt, by account
	shares   shares
}

func (t *batchTx) run(ctx context.Context) error {
	lanes, err := t.lanes(ctx)
	if err != nil || len(lanes) == 0 {
		return err
	}
	admission, err := t.admit(ctx, lanes)
	if err != nil {
		return err
	}
	parked, err := t.park(ctx, admission, len(lanes))
	if err != nil {
		return err
	}
	jobs, err := t.pick(ctx, &admission)
	if err != nil {
		return err
	}
	open, refused := dispatch.SplitRefused(jobs)
	within, crowded := dispatch.WithinShares(open, t.shares.left)
	chosen := dispatch.Choose(within, admission.Room, dispatch.RunningByAccount(lanes), len(t.b.Polls), t.b.Pool.FairShare)
	if err := t.claim(ctx, lanes, chosen); err != nil {
		return err
	}
	aside, err := t.setAside(ctx, crowded)
	if err != nil {
		return err
	}
	if err := t.setRefusedAside(ctx, refused); err != nil {
		return err
	}
	aside = append(aside, refused...)
	parked = append(parked, dispatch.Exhausted(admission, jobs)...)
	if err := t.settle(ctx, aside, parked); err != nil {
		return err
	}
	t.out.More = t.b.MayHideMore(len(lanes), len(t.out.Claims)) || len(t.out.Taken) > 0 || len(aside) > 0
	if len(jobs) > len(t.out.Claims) {
		// Jobs that were locked here and left alone were invisible to other replicas in between.
		return t.q.NotifyWork(ctx, "")
	}
	return nil
}

func (t *batchTx) lanes(ctx context.Context) ([]dispatch.Lane, error) {
	var lanes []dispatch.Lane
	add := func(key string, account, version, running int64, login, kind string, installation *int64, suspended bool) {
		lanes = append(lanes, dispatch.Lane{
			LabelKey: key, Version: version, Running: running, Suspended: suspended || installation == nil,
			Account: dispatch.Account{ID: account, Login: login, User: kind == "User", InstallationID: deref(installation)},
		})
	}
	if t.b.Pool.FairShare {
		rows, err := t.q.CandidateLanesFair(ctx, int32(t.b.MostLanes()), t.b.LabelKeys, t.b.Excluded) //nolint:gosec // at most MaxLanes
		for _, r := range rows {
			add(r.LabelKey, r.AccountID, r.Version, r.Running, r.Login, r.Kind, r.InstallationID, r.Suspended)
		}
		return lanes, err
	}
	rows, err := t.q.CandidateLanesFIFO(ctx, int32(t.b.MostLanes()), t.b.LabelKeys, t.b.Excluded) //nolint:gosec // at most MaxLanes
	for _, r := range rows {
		add(r.LabelKey, r.AccountID, r.Version, r.Running, r.Login, r.Kind, r.InstallationID, r.Suspended)
	}
	return lanes, err
}

// admit locks the budgets of the lanes' accounts and reads, in later statements, what is used of them (CLAIM-5).
func (t *batchTx) admit(ctx context.Context, lanes []dispatch.Lane) (dispatch.Admission, error) {
	ids := map[int64]bool{}
	var accounts []int64
	for _, lane := range lanes {
		if !ids[lane.Account.ID] {
			ids[lane.Account.ID] = true
			accounts = append(accounts, lane.Account.ID)
		}
	}
	platform := string(t.b.Pool.Platform)
	locked, err := t.q.LockLimits(ctx, platform, accounts)
	if err != nil {
		return dispatch.Admission{}, err
	}
	limits := map[int64]fleet.Limits{}
	t.shares.caps = map[int64]int64{}
	for _, l := range locked {
		limits[l.AccountID] = fleet.Limits{MilliCPU: l.MilliCpu, MemoryMB: l.MemoryMb, Jobs: l.Jobs}
		if most := t.s.repositoryCap(l.RepositoryJobs); most > 0 {
			t.shares.caps[l.AccountID] = most
		}
	}
	used, err := t.q.LiveUsage(ctx, platform, accounts)
	if err != nil {
		return dispatch.Admission{}, err
	}
	usage := map[int64]fleet.Usage{}
	suspended := map[int64]bool{}
	for _, u := range used {
		usage[u.ID] = fleet.Usage{MilliCPU: u.MilliCpu, MemoryMB: u.MemoryMb, Jobs: u.Jobs}
		suspended[u.ID] = u.Suspended
	}
	for i := range lanes { // suspended between the reading of the lane and the lock
		lanes[i].Suspended = lanes[i].Suspended || suspended[lanes[i].Account.ID]
		lanes[i].Account.RepositoryRunners = t.shares.caps[lanes[i].Account.ID] > 0
	}
	if err := t.readShares(ctx); err != nil {
		return dispatch.Admission{}, err
	}
	return dispatch.Admit(lanes, limits, usage, t.b.Pool.Shape, len(t.b.Polls)), nil
}

// parkedAtOnce bounds how many lanes a batch parks beside those that it has read.
const parkedAtOnce = 1000

// park lists the lanes to be parked. Of an account without room that includes lanes beyond those that the batch has read: each of
// the account's pods that ends unparks all of them, and parking a few in each batch would delay every other account (CLAIM-5).
func (t *batchTx) park(ctx context.Context, a dispatch.Admission, lanes int) ([]dispatch.Parking, error) {
	accounts := a.WithoutRoom()
	if !t.b.Full(lanes) || len(accounts) == 0 {
		return a.Parked, nil
	}
	rows, err := t.q.UnparkedLanes(ctx, accounts, t.b.LabelKeys, parkedAtOnce)
	if err != nil {
		return nil, err
	}
	parked := slices.Clone(a.Parked)
	for _, row := range rows { // some are there already
		parked = append(parked, dispatch.Parking{
			Lane:   dispatch.Lane{LabelKey: row.LabelKey, Account: dispatch.Account{ID: row.AccountID}, Version: row.Version},
			Reason: dispatch.ParkedLimit,
		})
	}
	return parked, nil
}

// pick reserves mint slots (CLAIM-14) and locks the oldest jobs of each admitted lane.
func (t *batchTx) pick(ctx context.Context, a *dispatch.Admission) ([]dispatch.QueuedJob, error) {
	var keys []string
	var accounts, allowed []int64
	for _, al := range t.b.Slots(a, t.reserved) {
		keys = append(keys, al.Lane.LabelKey)
		accounts = append(accounts, al.Lane.Account.ID)
		allowed = append(allowed, al.Allowed)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	rows, err := t.q.PickJobs(ctx, sqlcgen.PickJobsParams{
		LabelKeys: keys, Accounts: accounts, Allowed: allowed, Namespace: t.b.Pool.Namespace, Pool: t.b.Pool.Name,
	})
	if err != nil {
		return nil, err
	}
	jobs := make([]dispatch.QueuedJob, len(rows))
	for i, r := range rows {
		jobs[i] = dispatch.QueuedJob{
			ID: r.ID, AccountID: r.AccountID, LabelKey: r.LabelKey, Labels: r.Labels, QueuedAt: r.QueuedAt, Repository: r.Repository,
			RepositoryID: r.RepositoryID, Refused: r.Refused, Doubted: r.Doubted,
		}
	}
	return jobs, nil
}

// claim pairs the chosen jobs with the polls that waited longest and inserts the rows. A pod whose row another request inserted first is
// claimed already: it gets nothing from this batch, and the job stays in the queue.
func (t *batchTx) claim(ctx context.Context, lanes []dispatch.Lane, chosen []dispatch.QueuedJob) error {
	if len(chosen) == 0 {
		return nil
	}
	accounts := map[int64]dispatch.Account{}
	for _, lane := range lanes {
		accounts[lane.Account.ID] = lane.Account
	}
	lease := t.b.Now.Add(t.b.Lease)
	arg := sqlcgen.InsertClaimsParams{
		Pool: t.b.Pool.Name, LeaseUntil: &lease, Platform: string(t.b.Pool.Platform),
		MilliCpu: t.b.Pool.Shape.MilliCPU, MemoryMb: t.b.Pool.Shape.MemoryMB, Now: t.b.Now,
		KnownLineage: t.known.Lineage, KnownEpoch: t.known.Epoch,
	}
	wanted := map[string]dispatch.Claim{}
	for i, job := range chosen {
		poll := t.b.Polls[i]
		generation := dispatch.NextGeneration(0, t.b.Now)
		name, err := runnerpod.RunnerName(poll.PodUID, generation)
		if err != nil {
			return err
		}
		account := accounts[job.AccountID]
		arg.PodUids = append(arg.PodUids, poll.PodUID)
		arg.Namespaces = append(arg.Namespaces, poll.Namespace)
		arg.PodNames = append(arg.PodNames, poll.PodName)
		arg.Generations = append(arg.Generations, generation)
		arg.Accounts = append(arg.Accounts, job.AccountID)
		arg.LabelKeys = append(arg.LabelKeys, job.LabelKey)
		arg.Sequences = append(arg.Sequences, poll.Sequence)
		arg.JobIds = append(arg.JobIds, job.ID)
		arg.RunnerNames = append(arg.RunnerNames, name)
		scope := dispatch.ScopeFor(t.b.Pool, account, fleet.Repository{Name: job.Repository, ID: job.RepositoryID})
		arg.Scopes = append(arg.Scopes, scope.String())
		arg.RepositoryIds = append(arg.RepositoryIds, scope.RepositoryID)
		wanted[poll.PodUID] = dispatch.Claim{
			PodUID: poll.PodUID, Namespace: poll.Namespace, PodName: poll.PodName, Pool: t.b.Pool.Name,
			State: fleet.ClaimClaimed, Generation: generation, LeaseUntil: lease, Sequence: poll.Sequence, Account: account,
			LabelKey: job.LabelKey, Labels: job.Labels, JobID: job.ID, Repository: job.Repository, RepositoryID: job.RepositoryID,
			RunnerName: name, Refused: job.Doubted,
		}
	}
	won, err := t.q.InsertClaims(ctx, arg)
	if err != nil {
		return err
	}
	return t.markClaimed(ctx, arg.PodUids, won, wanted)
}

// markClaimed sorts the pods by whose rows were inserted and marks the jobs of the new claims as claimed.
func (t *batchTx) markClaimed(ctx context.Context, asked, won []string, wanted map[string]dispatch.Claim) error {
	inserted := map[string]bool{}
	for _, uid := range won {
		inserted[uid] = true
	}
	var ids []int64
	for _, uid := range asked {
		if !inserted[uid] {
			t.out.Taken = append(t.out.Taken, uid)
			continue
		}
		claim := wanted[uid]
		t.out.Claims = append(t.out.Claims, claim)
		ids = append(ids, claim.JobID)
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := t.q.ClaimJobs(ctx, t.b.Now, ids) // CLAIM-2: with the claims, or not at all
	return err
}

type lane struct {
	key     string
	account int64
}

// settle counts the claims from each lane, and parks the lanes to be parked. It processes the lanes in one order, and reads the queue of
// each with the lane locked: a job that comes back concurrently may be its oldest, and the lane keeps the place in line that it is given.
func (t *batchTx) settle(ctx context.Context, aside []dispatch.QueuedJob, parked []dispatch.Parking) error {
	claimed, parking := map[lane]int64{}, map[lane]dispatch.Parking{}
	for _, job := range aside { // the next jobs of their lanes may be much younger
		claimed[lane{job.LabelKey, job.AccountID}] = 0
	}
	for _, p := range parked {
		at := lane{p.Lane.LabelKey, p.Lane.Account.ID}
		claimed[at], parking[at] = 0, p
	}
	for _, claim := range t.out.Claims {
		claimed[lane{claim.LabelKey, claim.Account.ID}]++
	}
	if len(claimed) == 0 {
		return nil
	}
	var arg sqlcgen.SettleLanesParams
	for l, n := range claimed {
		arg.LabelKeys, arg.Accounts, arg.Claimed = append(arg.LabelKeys, l.key), append(arg.Accounts, l.account), append(arg.Claimed, n)
		arg.Versions, arg.Reasons = append(arg.Versions, parking[l].Lane.Version), append(arg.Reasons, parking[l].Reason)
	}
	if err := t.q.LockLanes(ctx, arg.LabelKeys, arg.Accounts); err != nil {
		return err
	}
	return t.q.SettleLanes(ctx, arg)
}
