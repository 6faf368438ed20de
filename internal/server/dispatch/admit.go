package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// MaxLanes bounds how many lanes one batch reads, beside the first lane of each of as many accounts; a batch that reads that many asks for
// another round.
const MaxLanes = 32

// Batch asks for up to len(Polls) claims.
type Batch struct {
	Pool      Pool
	LabelKeys []string
	Polls     []Poll // longest wait first
	Excluded  []int64
	// Reserve takes up to want mint slots of an account and returns how many it got (CLAIM-14). It is called within the
	// transaction. After the transaction each claim has one of them, and the others go back through Return.
	Reserve func(account Account, want int) int
	Return  func(accountID int64, slots int)
	// Lease bounds how long a claim waits for its minter before a poll may take it over.
	Lease time.Duration
	Now   time.Time
}

// MostLanes is how many lanes the batch reads: the oldest jobs for n polls stand at the heads of at most n lanes; a few
// more, because some of those may turn out to be empty or at their limit.
func (b Batch) MostLanes() int { return max(8, min(MaxLanes, len(b.Polls))) }

// MayHideMore reports whether another round may find more: a full batch, or as many lanes as were read, may hide some.
// Every lane seen was claimed from, parked, or has an account that the next round excludes, so rounds terminate.
func (b Batch) MayHideMore(lanes, claims int) bool {
	return claims == len(b.Polls) || b.Full(lanes)
}

// Full reports whether a batch that has read so many lanes may have left some unread.
func (b Batch) Full(lanes int) bool { return lanes >= b.MostLanes() }

// Slots reserves mint slots for the accounts that may have jobs (CLAIM-14), adds them to reserved, and lowers the accounts' room
// to what they got. It returns the allowances of accounts that have any.
func (b Batch) Slots(a *Admission, reserved map[int64]int) []Allowance {
	var backed []Allowance
	for i := range a.Allowances {
		al := &a.Allowances[i]
		id := al.Lane.Account.ID
		if _, asked := reserved[id]; !asked {
			reserved[id] = b.Reserve(al.Lane.Account, int(min(a.Room[id], int64(len(b.Polls)))))
			a.Room[id] = min(a.Room[id], int64(reserved[id]))
		}
		al.Allowed = min(al.Allowed, a.Room[id])
		if al.Allowed > 0 {
			backed = append(backed, *al)
		}
	}
	return backed
}

// Poll is a pod that waits for work.
type Poll struct {
	Namespace, PodName, PodUID string
	Sequence                   int64 // the number of its request; 0: not numbered
}

// BatchResult is what a batch did.
type BatchResult struct {
	Claims []Claim  // committed, each with a lease in the caller's name and a mint slot in the caller's hand
	Taken  []string // pods whose row another request inserted first: their polls read the row again
	More   bool     // another round may find more
}

// Lane is one account's queue for one label set, unparked.
type Lane struct {
	LabelKey  string
	Account   Account
	Version   int64
	Running   int64
	Suspended bool // by GitHub or an administrator, or the App was uninstalled
}

// Why lanes are parked. A lane with blocked jobs alone is parked as "held" in the ledger.
const (
	ParkedEmpty     = "empty"
	ParkedLimit     = "limit"
	ParkedSuspended = "suspended"
)

// Parking takes a lane out of the way of later picks until work or room appears.
type Parking struct {
	Lane   Lane
	Reason string // one of Parked
}

// Allowance is how many of a lane's jobs a batch may take.
type Allowance struct {
	Lane    Lane
	Allowed int64
}

// Admission says what a batch may take from each lane, before any job is read.
type Admission struct {
	Allowances []Allowance
	Room       map[int64]int64 // account → how many more runners of the pool's shape fit
	Parked     []Parking
}

// WithoutRoom lists the accounts of which several lanes are to be parked at their limit, sorted: they may have many more.
func (a Admission) WithoutRoom() []int64 {
	lanes := map[int64]int{}
	for _, p := range a.Parked {
		if p.Reason == ParkedLimit {
			lanes[p.Lane.Account.ID]++
		}
	}
	maps.DeleteFunc(lanes, func(_ int64, n int) bool { return n == 1 })
	return slices.Sorted(maps.Keys(lanes))
}

// Admit reads each account's budget (CLAIM-5). A busy account never blocks the others: its lanes are parked.
func Admit(
	lanes []Lane, limits map[int64]fleet.Limits, usage map[int64]fleet.Usage, shape fleet.Shape, polls int,
) Admission {
	a := Admission{Room: map[int64]int64{}}
	for _, lane := range lanes {
		if lane.Suspended {
			a.Parked = append(a.Parked, Parking{lane, ParkedSuspended})
			continue
		}
		room, seen := a.Room[lane.Account.ID]
		if !seen {
			room = limits[lane.Account.ID].Room(usage[lane.Account.ID], shape)
			a.Room[lane.Account.ID] = room
		}
		if room == 0 {
			a.Parked = append(a.Parked, Parking{lane, ParkedLimit})
			continue
		}
		a.Allowances = append(a.Allowances, Allowance{lane, min(room, int64(polls))})
	}
	return a
}

// QueuedJob is a candidate of a batch.
type QueuedJob struct {
	ID         int64
	AccountID  int64
	LabelKey   string
	Labels     []string // as the job writes them
	QueuedAt   time.Time
	Repository string
	// RepositoryID is GitHub's, 0 where it is not known.
	RepositoryID int64
	// Refused: the job must be set aside, because its repository waits after a refusal of GitHub. Doubted: a job of its repository was
	// refused, and this one may be the next attempt.
	Refused, Doubted bool
}

// Repo names the job's repository.
func (j QueuedJob) Repo() Repository { return Repository{j.AccountID, j.Repository} }

// SplitRefused separates the jobs that must be set aside after a refusal of GitHub from the others (CLAIM-19).
func SplitRefused(jobs []QueuedJob) (open, refused []QueuedJob) {
	for _, job := range jobs {
		if job.Refused {
			refused = append(refused, job)
		} else {
			open = append(open, job)
		}
	}
	return open, refused
}

// WithinShares splits the jobs into those that their repositories may still run, the oldest first, and the others. left
// returns how many more jobs of a repository may run, and whether it has such a bound at all.
func WithinShares(jobs []QueuedJob, left func(Repository) (int64, bool)) (within, crowded []QueuedJob) {
	taken := map[Repository]int64{}
	for _, job := range sortedByAge(jobs) {
		if n, bounded := left(job.Repo()); bounded && taken[job.Repo()] >= n {
			crowded = append(crowded, job)
			continue
		}
		taken[job.Repo()]++
		within = append(within, job)
	}
	return within, crowded
}

// Full are those of the crowded jobs whose repositories have no room left, one of each lane and repository, to be set aside with all of its
// kind. Some of the others were met first and got no poll: it may be their turn in the next round. left counts the batch's claims too.
func Full(crowded []QueuedJob, left func(Repository) (int64, bool)) []QueuedJob {
	type place struct {
		key  string
		repo Repository
	}
	seen := map[place]bool{}
	var full []QueuedJob
	for _, job := range crowded {
		at := place{job.LabelKey, job.Repo()}
		if n, _ := left(job.Repo()); n > 0 || seen[at] {
			continue
		}
		seen[at] = true
		full = append(full, job)
	}
	return full
}

// RunningByAccount adds up what runs of each account in these lanes.
func RunningByAccount(lanes []Lane) map[int64]int64 {
	running := map[int64]int64{}
	for _, lane := range lanes {
		running[lane.Account.ID] += lane.Running
	}
	return running
}

// Exhausted lists the lanes that gave fewer jobs than they were allowed: empty, unless jobs arrive in between.
func Exhausted(a Admission, jobs []QueuedJob) []Parking {
	type place struct {
		key     string
		account int64
	}
	got := map[place]int64{}
	for _, job := range jobs {
		got[place{job.LabelKey, job.AccountID}]++
	}
	var empty []Parking
	for _, al := range a.Allowances {
		if a.Room[al.Lane.Account.ID] > 0 && got[place{al.Lane.LabelKey, al.Lane.Account.ID}] < al.Allowed {
			empty = append(empty, Parking{Lane: al.Lane, Reason: ParkedEmpty})
		}
	}
	return empty
}

func sortedByAge(jobs []QueuedJob) []QueuedJob {
	return slices.SortedFunc(slices.Values(jobs), func(a, b QueuedJob) int {
		return cmp.Or(a.QueuedAt.Compare(b.QueuedAt), cmp.Compare(a.ID, b.ID))
	})
}

// Choose picks at most polls of the jobs: oldest first, or, with fairShare, always the oldest job of the account
// that has least running in this pool. room is spent as it goes.
func Choose(jobs []QueuedJob, room map[int64]int64, running map[int64]int64, polls int, fairShare bool) []QueuedJob {
	jobs = sortedByAge(jobs)
	if fairShare {
		jobs = interleave(jobs, running)
	}
	left := map[int64]int64{}
	for account, n := range room {
		left[account] = n
	}
	var chosen []QueuedJob
	for _, job := range jobs {
		if len(chosen) == polls {
			break
		}
		if left[job.AccountID] == 0 {
			continue
		}
		left[job.AccountID]--
		chosen = append(chosen, job)
	}
	return chosen
}

// interleave orders jobs so that each next one belongs to the account with least running, then by age.
func interleave(jobs []QueuedJob, running map[int64]int64) []QueuedJob {
	queues := map[int64][]QueuedJob{}
	for _, job := range jobs {
		queues[job.AccountID] = append(queues[job.AccountID], job)
	}
	type turn struct {
		job  QueuedJob
		rank int64
	}
	turns := make([]turn, 0, len(jobs))
	for account, queue := range queues {
		for i, job := range queue {
			turns = append(turns, turn{job, running[account] + int64(i)})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), a.job.QueuedAt.Compare(b.job.QueuedAt), cmp.Compare(a.job.ID, b.job.ID))
	})
	for i, t := range turns {
		jobs[i] = t.job
	}
	return jobs
}
