package recovery

import (
	"context"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// Pod is a runner pod as the API server itself shows it, past every cache.
type Pod struct {
	dispatch.Pod
	ResourceVersion string
	Terminal        bool // nothing runs in it; false for one whose node is gone
	Poller          PollerIs
	Runner          RunnerIs
	// Since is when what it shows last changed: its creation, its poller's end, its runner's readiness. It is by the clocks of the
	// API server and of the pod's node: it tells that something has changed, and not how long ago.
	Since time.Time
}

// Cluster is Kubernetes. Its reads are uncached.
type Cluster interface {
	// RunnerPods lists every runner pod. An error means that nothing is known (RECV-4).
	RunnerPods(ctx context.Context) ([]Pod, error)
	// RunnerPod reads one; false proves that no pod of that UID exists.
	RunnerPod(ctx context.Context, namespace, name, uid string) (Pod, bool, error)
	// Pod is what the watch shows: a way to learn a pod's name from its UID.
	Pod(uid string) (dispatch.Pod, bool)
	// NoteOwner writes the owner's id onto the pod, and no label (TEN-8).
	NoteOwner(ctx context.Context, pod dispatch.Pod, owner dispatch.Account) error
	// TakeOffOwner removes the owner label if the pod has not changed since it was read.
	TakeOffOwner(ctx context.Context, pod Pod) error
}

// Row is a pod's row with what belongs to it.
type Row struct {
	dispatch.Claim
	MovedAt      time.Time // when it was last claimed, minted, acknowledged or given its job
	EndedAt      time.Time // of one that is over
	MissingSince time.Time // since when its pod has not been listed; zero: it was, the last time
	LookAt       time.Time // when it is worth another check; zero: any time
	StoppedAt    time.Time // when the end of its pod was reported; zero: it was not
	Job          fleet.JobState
	Buried       bool      // its job has a tombstone
	Open         bool      // a registration of it is not known to be gone
	GoneAt       time.Time // when the last of its registrations was found to be gone; long ago: none was
}

// Look says which rows are wanted.
type Look struct {
	Named  []string // these, whatever they say
	Sweep  bool     // and the live ones that look wrong
	Listed []string // by the pods that are listed
	Now    time.Time
	// LongAgo is when nothing must have happened since for a live claim to look wrong.
	LongAgo time.Time
	After   string // pod UID; for the next page
	Most    int
}

// StrayPod is a pod that is not listed and has no row, and of which something is left.
type StrayPod struct {
	UID     string
	Since   time.Time
	Account dispatch.Account
}

// StrayJob is a job whose row says that a claim has it, while none does.
type StrayJob struct {
	ID         int64
	State      fleet.JobState
	Repository fleet.Repository
	RunnerName string
	Labels     string // as dispatch.LabelKey wrote them
	Account    dispatch.Account
	Since      time.Time
}

// Ledger is what package ledger implements. Every method is one transaction; lists come in pages, by UID or id.
type Ledger interface {
	Suspects(ctx context.Context, look Look) ([]Row, error)
	// Unowned returns those of the pods that have no claim, and of which nothing is proven yet.
	Unowned(ctx context.Context, podUIDs []string) ([]string, error)
	Registrations(ctx context.Context, podUID string, before int64) ([]dispatch.Registration, error)
	// NoteSightings keeps since when pods without a claim have shown that, by UID, and returns it. With all, pods that are
	// not among them are forgotten.
	NoteSightings(ctx context.Context, shown map[string]string, all bool, now time.Time) (map[string]time.Time, error)
	// NoteAbsence keeps since when pods of live claims have not been listed, and forgets it of those that are (RECV-4).
	NoteAbsence(ctx context.Context, missing, seen []string, now time.Time) error
	LookAtClaimAgain(ctx context.Context, podUID string, generation int64, at time.Time) error
	LookAtJobAgain(ctx context.Context, jobID int64, at time.Time) error

	// DoubtRegistrations reopens registrations that GitHub did not list long ago, and whose mints were never answered: GitHub may have
	// carried them out since. Each is doubted once, when its pod has no row.
	DoubtRegistrations(ctx context.Context, longAgo time.Time, most int) error
	StrayRegistrations(ctx context.Context, listed []string, longAgo time.Time, after string, most int) ([]StrayPod, error)
	StraySessions(ctx context.Context, listed []string, after string, most int) ([]StrayPod, error)
	StrayJobs(ctx context.Context, longAgo, now time.Time, after int64, most int) ([]StrayJob, error)

	CloseSession(ctx context.Context, podUID string, now time.Time) (bool, error)
	// RequeueJob queues a job again that no live claim has; one that is recorded as running only when GitHub reports it as queued.
	RequeueJob(ctx context.Context, jobID int64, githubSaysQueued bool, now time.Time) (bool, error)
	RecordJob(ctx context.Context, d dispatch.Delivery, ev dispatch.JobEvent) (dispatch.Recorded, error)
}

// GitHub is what is read there. Errors are those of package fleet; it does not retry.
type GitHub interface {
	// FindRunner asks the scope's list by name. ErrNotFound means that it was readable and has none (EXCL-6).
	FindRunner(ctx context.Context, installationID int64, scope fleet.Scope, name string) (fleet.Registration, error)
	// Job reads a job; ErrNotFound proves something only beside a successful ReadRuns of the same repository.
	Job(ctx context.Context, installationID int64, repository fleet.Repository, jobID int64) (github.WorkflowJob, error)
	ReadRuns(ctx context.Context, installationID int64, repository fleet.Repository) error
}

// Claims are package dispatch's own ways to end a claim.
type Claims interface {
	// Frozen says why nothing may be handed out or granted now: the ledger is not trusted (CLAIM-17).
	Frozen() (reason string, frozen bool)
	// EndClaim removes the registrations of a live claim of exactly that generation, and ends it if all are proven gone. What
	// GitHub's lists show of it since that time is removed too.
	EndClaim(ctx context.Context, claim dispatch.Claim, giveBack bool, since time.Time) (dispatch.Ending, error)
	// Unregister removes the registrations like EndClaim, and leaves the claim as it is.
	Unregister(ctx context.Context, claim dispatch.Claim, since time.Time) (dispatch.Ending, error)
	// NotAssigned reports that GitHub did not give the claim's runner the job that it was registered for.
	NotAssigned(ctx context.Context, claim dispatch.Claim) error
	// RetireProven retires a pod without a claim, and searches for a proof that it has no registration: it comes with
	// Granted. Busy: GitHub says that it has a job, and it was adopted.
	RetireProven(ctx context.Context, pod dispatch.Pod) (runnerapi.RetireAnswer, error)
	// CloseRegistrations removes what is left of a pod whose work is over.
	CloseRegistrations(ctx context.Context, podUID string, account dispatch.Account) error
}
