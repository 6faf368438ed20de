package simulate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// blockedAtOnce bounds how many jobs of a lane are read when some are set aside, as in the ledger's SQL.
const blockedAtOnce = 1000

// laneBlocked is how a lane is parked that has none but blocked jobs, in the words of the ledger.
const laneBlocked = "held"

// ledger is the queue: what internal/server/ledger keeps in job_lanes, workflow_jobs and runner_claims, as far as it
// decides which job is next. It repeats what its statements order by and skip; TestLedger_AnswersAsPostgres holds the two
// together.
type ledger struct {
	lanes    map[lanePlace]*lane
	accounts map[int64]*account
	sets     []dispatch.LabelSet
	known    map[string]bool // keys of sets
}

type lanePlace struct {
	key     string
	account int64
}

type lane struct {
	lanePlace
	parked  string
	head    time.Time
	running int64
	queue   []dispatch.QueuedJob // oldest first, without the blocked ones
	blocked []dispatch.QueuedJob // those that wait for their repository
}

type account struct {
	dispatch.Account
	limits map[fleet.Platform]fleet.Limits
	usage  map[fleet.Platform]fleet.Usage
	// repositories counts live claims by repository.
	repositories map[fleet.Platform]map[string]int64
}

func newLedger() *ledger {
	return &ledger{lanes: map[lanePlace]*lane{}, accounts: map[int64]*account{}, known: map[string]bool{}}
}

// admit adds an account, or changes its limits.
func (l *ledger) admit(a dispatch.Account, limits map[fleet.Platform]fleet.Limits) {
	l.accounts[a.ID] = &account{
		Account: a, limits: limits, usage: map[fleet.Platform]fleet.Usage{}, repositories: map[fleet.Platform]map[string]int64{},
	}
}

// add queues a job that asks for those labels.
func (l *ledger) add(job dispatch.QueuedJob, labels []string) {
	if !l.known[job.LabelKey] {
		l.known[job.LabelKey] = true
		l.sets = append(l.sets, dispatch.LabelSet{Key: job.LabelKey, Labels: labels})
	}
	at := lanePlace{job.LabelKey, job.AccountID}
	into := l.lanes[at]
	if into == nil {
		into = &lane{lanePlace: at, head: job.QueuedAt}
		l.lanes[at] = into
	}
	if slices.ContainsFunc(into.blocked, func(h dispatch.QueuedJob) bool { return h.Repository == job.Repository }) {
		into.blocked = insert(into.blocked, job) // it queues up behind those of its repository that were set aside before it
	} else {
		into.queue = insert(into.queue, job)
	}
	into.feed(job.QueuedAt)
}

func byAge(a, b dispatch.QueuedJob) int {
	return cmp.Or(a.QueuedAt.Compare(b.QueuedAt), cmp.Compare(a.ID, b.ID))
}

func insert(queue []dispatch.QueuedJob, job dispatch.QueuedJob) []dispatch.QueuedJob {
	at, _ := slices.BinarySearchFunc(queue, job, byAge)
	return slices.Insert(queue, at, job)
}

// feed is FeedLane.
func (n *lane) feed(at time.Time) {
	if n.parked == dispatch.ParkedEmpty || n.parked == laneBlocked || at.Before(n.head) {
		n.head = at
	}
	n.parked = ""
}

// candidates is CandidateLanesFIFO and CandidateLanesFair. Of each label set no more lanes are taken than of all together, so
// that the bound within one changes nothing.
func (l *ledger) candidates(b dispatch.Batch) []dispatch.Lane {
	var found []*lane
	for _, n := range l.lanes {
		if n.parked == "" && slices.Contains(b.LabelKeys, n.key) && !slices.Contains(b.Excluded, n.account) {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(x, y *lane) int {
		fair := 0
		if b.Pool.FairShare {
			fair = cmp.Compare(x.running, y.running)
		}
		return cmp.Or(fair, x.head.Compare(y.head), cmp.Compare(x.account, y.account), cmp.Compare(x.key, y.key))
	})
	lanes := make([]dispatch.Lane, 0, b.MostLanes())
	accounts := map[int64]bool{}
	for i, n := range found {
		first := !accounts[n.account] && len(accounts) < b.MostLanes() // the account's first lane
		if first {
			accounts[n.account] = true
		}
		if i < b.MostLanes() || first {
			lanes = append(lanes, dispatch.Lane{LabelKey: n.key, Account: l.accounts[n.account].Account, Running: n.running})
		}
	}
	return lanes
}

// further is UnparkedLanes.
func (l *ledger) further(b dispatch.Batch, a dispatch.Admission, read int) []dispatch.Parking {
	if !b.Full(read) {
		return nil
	}
	var parked []dispatch.Parking
	for _, id := range a.WithoutRoom() {
		for _, key := range b.LabelKeys {
			if n := l.lanes[lanePlace{key, id}]; n != nil && n.parked == "" {
				parked = append(parked, dispatch.Parking{
					Lane: dispatch.Lane{LabelKey: key, Account: l.accounts[id].Account}, Reason: dispatch.ParkedLimit,
				})
			}
		}
	}
	return parked
}

// claim is one batch, as postgres.Store.ClaimBatch: the same pure functions in the same order.
func (l *ledger) claim(b dispatch.Batch) dispatch.BatchResult {
	var out dispatch.BatchResult
	lanes := l.candidates(b)
	if len(lanes) == 0 {
		return out
	}
	platform := b.Pool.Platform
	limits, usage := map[int64]fleet.Limits{}, map[int64]fleet.Usage{}
	for _, n := range lanes {
		a := l.accounts[n.Account.ID]
		limits[a.ID], usage[a.ID] = a.limits[platform], a.usage[platform]
	}
	left := func(r dispatch.Repository) (int64, bool) {
		a := l.accounts[r.AccountID]
		most := a.limits[platform].JobsPerRepository
		return max(0, most-a.repositories[platform][r.Name]), most > 0
	}
	admission := dispatch.Admit(lanes, limits, usage, b.Pool.Shape, len(b.Polls))
	reserved := map[int64]int{}
	var jobs []dispatch.QueuedJob
	for _, al := range b.Slots(&admission, reserved) {
		queue := l.lanes[lanePlace{al.Lane.LabelKey, al.Lane.Account.ID}].queue
		jobs = append(jobs, queue[:min(int64(len(queue)), al.Allowed)]...)
	}
	slices.SortFunc(jobs, byAge)
	within, crowded := dispatch.WithinShares(jobs, left)
	chosen := dispatch.Choose(within, admission.Room, dispatch.RunningByAccount(lanes), len(b.Polls), b.Pool.FairShare)
	for i, job := range chosen {
		poll := b.Polls[i]
		out.Claims = append(out.Claims, dispatch.Claim{
			PodUID: poll.PodUID, Namespace: poll.Namespace, PodName: poll.PodName, Pool: b.Pool.Name, State: fleet.ClaimClaimed,
			Account: l.accounts[job.AccountID].Account, LabelKey: job.LabelKey, JobID: job.ID, Repository: job.Repository,
		})
		reserved[job.AccountID]--
		l.take(job, b.Pool)
	}
	aside := dispatch.Full(crowded, left)
	for _, job := range aside {
		l.setAside(job)
	}
	l.advance(chosen, aside)
	for _, p := range slices.Concat(admission.Parked, l.further(b, admission, len(lanes)), dispatch.Exhausted(admission, jobs)) {
		l.park(p)
	}
	out.More = b.MayHideMore(len(lanes), len(out.Claims)) || len(aside) > 0
	for _, id := range slices.Sorted(maps.Keys(reserved)) {
		b.Return(id, reserved[id])
	}
	return out
}

// take is InsertClaims and ClaimJobs: the job leaves its lane, the account is charged.
func (l *ledger) take(job dispatch.QueuedJob, pool dispatch.Pool) {
	n := l.lanes[lanePlace{job.LabelKey, job.AccountID}]
	at, _ := slices.BinarySearchFunc(n.queue, job, byAge)
	n.queue = slices.Delete(n.queue, at, at+1)
	l.charge(job, pool, 1)
}

func (l *ledger) charge(job dispatch.QueuedJob, pool dispatch.Pool, by int64) {
	a := l.accounts[job.AccountID]
	use := a.usage[pool.Platform]
	a.usage[pool.Platform] = fleet.Usage{
		MilliCPU: use.MilliCPU + by*pool.Shape.MilliCPU, MemoryMB: use.MemoryMB + by*pool.Shape.MemoryMB, Jobs: use.Jobs + by,
	}
	if a.repositories[pool.Platform] == nil {
		a.repositories[pool.Platform] = map[string]int64{}
	}
	if a.repositories[pool.Platform][job.Repository] += by; a.repositories[pool.Platform][job.Repository] == 0 {
		delete(a.repositories[pool.Platform], job.Repository)
	}
}

// setAside is SetAside, for one lane and repository.
func (l *ledger) setAside(job dispatch.QueuedJob) {
	n := l.lanes[lanePlace{job.LabelKey, job.AccountID}]
	kept := make([]dispatch.QueuedJob, 0, len(n.queue))
	for i, waiting := range n.queue {
		if i < blockedAtOnce && waiting.Repository == job.Repository {
			n.blocked = insert(n.blocked, waiting)
			continue
		}
		kept = append(kept, waiting)
	}
	n.queue = kept
}

// advance is SettleLanes, of what was claimed.
func (l *ledger) advance(claimed, aside []dispatch.QueuedJob) {
	for _, job := range claimed {
		l.lanes[lanePlace{job.LabelKey, job.AccountID}].running++
	}
	for _, job := range slices.Concat(claimed, aside) {
		l.lanes[lanePlace{job.LabelKey, job.AccountID}].moveHead()
	}
}

// moveHead lets the hint move on to the oldest job that is left: SettleLanes does so for each lane that it touches.
func (n *lane) moveHead() {
	if len(n.queue) > 0 {
		n.head = n.queue[0].QueuedAt
	}
}

// park is SettleLanes for a parked lane.
func (l *ledger) park(p dispatch.Parking) {
	n := l.lanes[lanePlace{p.Lane.LabelKey, p.Lane.Account.ID}]
	n.moveHead()
	switch {
	case p.Reason == dispatch.ParkedEmpty && len(n.queue) > 0:
	case p.Reason == dispatch.ParkedEmpty && len(n.blocked) > 0:
		n.parked = laneBlocked
	default:
		n.parked = p.Reason
	}
}

// end is FreeRoom and ReturnNext: a claim is over and its pod has ended, its account has room, and the next job of its
// repository is unblocked.
func (l *ledger) end(job dispatch.QueuedJob, pool dispatch.Pool) {
	l.charge(job, pool, -1)
	n := l.lanes[lanePlace{job.LabelKey, job.AccountID}]
	n.running = max(0, n.running-1)
	var next *dispatch.QueuedJob
	for _, other := range l.lanes {
		if other.account != job.AccountID {
			continue
		}
		if other.parked == dispatch.ParkedLimit {
			other.parked = ""
		}
		for i := range other.blocked {
			if h := other.blocked[i]; h.Repository == job.Repository {
				if next == nil || byAge(h, *next) < 0 {
					next = &h
				}
				break
			}
		}
	}
	if next == nil {
		return
	}
	into := l.lanes[lanePlace{next.LabelKey, next.AccountID}]
	at, _ := slices.BinarySearchFunc(into.blocked, *next, byAge)
	into.blocked = slices.Delete(into.blocked, at, at+1)
	into.queue = insert(into.queue, *next)
	into.feed(next.QueuedAt)
}

// backlog is postgres.Store.Backlog: what waits, and what accounts may still use.
func (l *ledger) backlog(pools []dispatch.Pool, runners map[dispatch.PoolRef]dispatch.Runners) dispatch.Backlog {
	b := dispatch.Backlog{
		Limits: map[dispatch.Budget]fleet.Limits{}, Usage: map[dispatch.Budget]fleet.Usage{}, Runners: runners,
		Repositories: map[dispatch.RepositoryBudget]int64{},
	}
	for _, n := range slices.SortedFunc(maps.Values(l.lanes), func(x, y *lane) int {
		return cmp.Or(cmp.Compare(x.account, y.account), cmp.Compare(x.key, y.key))
	}) {
		if n.parked == dispatch.ParkedEmpty {
			continue
		}
		a := l.accounts[n.account]
		b.Lanes = append(b.Lanes, dispatch.WaitingLane{LabelKey: n.key, Account: a.Account})
		for platform, limits := range a.limits {
			budget := dispatch.Budget{AccountID: a.ID, Platform: platform}
			b.Limits[budget], b.Usage[budget] = limits, a.usage[platform]
			for repository, jobs := range a.repositories[platform] {
				b.Repositories[dispatch.RepositoryBudget{Budget: budget, Repository: repository}] = jobs
			}
		}
	}
	for i, look := range dispatch.Looks(pools, l.sets, b) {
		w := &b.Lanes[i]
		n := l.lanes[lanePlace{w.LabelKey, w.Account.ID}]
		w.Jobs, w.Blocked = min(int64(len(n.queue)), look.Count), min(int64(len(n.blocked)), look.Count)
		for _, job := range n.queue[:min(int64(len(n.queue)), look.Ages)] {
			w.Oldest = append(w.Oldest, dispatch.JobAge{ID: job.ID, QueuedAt: job.QueuedAt})
			if look.Repositories {
				w.Repositories = append(w.Repositories, job.Repository)
			}
		}
	}
	return b
}

// waiting counts the jobs that have no runner, blocked ones too.
func (l *ledger) waiting() int {
	n := 0
	for _, lane := range l.lanes {
		n += len(lane.queue) + len(lane.blocked)
	}
	return n
}
