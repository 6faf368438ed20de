package dispatch

import (
	"context"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
)

// Pool is a RunnerPool as dispatch needs it.
type Pool struct {
	Namespace, Name string
	Labels          []string // as the pool's author wrote them; matched without regard to case
	Platform        fleet.Platform
	Shape           fleet.Shape
	RunnerGroup     string // by name; empty where RunnerGroupID says it
	RunnerGroupID   int64
	RepositoryScope bool // register at the job's repository instead of the owner
	FairShare       bool
	Paused          bool   // hands out no job, and keeps its label: jobs wait for it
	PausedNote      string // by whom, when and why, in a few words; empty when unknown
	Terminating     bool   // being deleted: serves no new work and does not count for CLAIM-12
}

// PoolRef names a pool.
type PoolRef struct{ Namespace, Name string }

// Ref names the pool.
func (p Pool) Ref() PoolRef { return PoolRef{p.Namespace, p.Name} }

// Pod is a runner pod as the watch shows it; the pool comes from what the controller wrote (NET-4).
type Pod struct {
	Namespace, Name, UID string
	Pool                 PoolRef
	Deleting             bool
	OwnerLabel           string
	OwnerID              int64 // GitHub's id of the account that it works for, which a pod without the label may have too; 0: not known
	PollerEnded          bool  // its answer is staged: it exited 0
}

// OwnerNoted reports whether the pod names its account, by its label or beside it.
func (p Pod) OwnerNoted() bool { return p.OwnerLabel != "" || p.OwnerID != 0 }

// Account is an organization or user whose jobs are served.
type Account struct {
	ID             int64
	Login          string
	User           bool // a user account has repositories only: runners are registered there
	InstallationID int64
	// RepositoryRunners: its runners are registered at the job's repository, because it has a cap per repository, and a
	// runner of the organization takes any job GitHub gives it.
	RepositoryRunners bool
}

// Claim is one row of runner_claims. State ClaimNone means that there is no row.
type Claim struct {
	PodUID, Namespace, PodName, Pool string
	State                            fleet.ClaimState
	Generation                       int64
	LeaseUntil                       time.Time // zero: it is not being minted
	Sequence                         int64     // of the latest request that it was made for, or taken over by; 0: not numbered
	Account                          Account
	LabelKey                         string
	Labels                           []string // as the job that it was made for writes them
	JobID                            int64    // 0: its job went to another runner
	Repository                       string
	RepositoryID                     int64 // 0: GitHub's id of it is not known
	RunnerName                       string
	Refused                          bool // something of its repository's was refused: a registration proves that it is over (CLAIM-19)
	Acknowledged                     bool
	Proof                            string // of a spent row: the proof that its work is over
}

// Registration is one name that was, or was about to be, minted for a pod and is not known to be gone.
type Registration struct {
	Name     string
	RunnerID int64 // 0: not known yet
	Scope    fleet.Scope
}

// Store is the ledger. Every method is one transaction; a method that returns an error has changed nothing, and may
// be called again. Implementations are safe for concurrent use.
type Store interface {
	IntakeStore
	AdmissionStore
	ClaimStore
	AdoptionStore
	SignalsStore
	DemandStore
	UnservedStore
	RefusalStore
}

// IntakeStore records what GitHub tells.
type IntakeStore interface {
	// RecordInstallation notes an installation event; a delivery seen before changes nothing and reports false.
	RecordInstallation(ctx context.Context, d Delivery, in Installation) (fresh bool, err error)
	// RecordJob applies a workflow_job event through Resolve.
	RecordJob(ctx context.Context, d Delivery, ev JobEvent) (Recorded, error)
}

// AdmissionStore turns queued jobs and waiting polls into claims.
type AdmissionStore interface {
	// LabelSetsFrom lists label sets that jobs have asked for, by key and in the order of bytes, from that key on.
	LabelSetsFrom(ctx context.Context, start string, most int32) ([]string, error)
	// LabelSetsAmong returns those of the keys that jobs have asked for.
	LabelSetsAmong(ctx context.Context, labelKeys []string) ([]string, error)
	// UnparkLabelSets unparks lanes of these label sets that are parked at their limit, so that they are read
	// again.
	UnparkLabelSets(ctx context.Context, labelKeys []string) error
	// ClaimBatch claims jobs for polls in one transaction, by Admit and Choose.
	ClaimBatch(ctx context.Context, b Batch) (BatchResult, error)
}

// ClaimStore moves one pod's claim. Those that take a generation report false when it no longer holds.
type ClaimStore interface {
	Claim(ctx context.Context, podUID string) (Claim, error)
	TakeOver(ctx context.Context, podUID string, expected, next, sequence int64, lease, now time.Time) (bool, error)
	// Registrations are those of a pod that are not known to be gone, as far as an earlier generation minted them.
	Registrations(ctx context.Context, podUID string, before int64) ([]Registration, error)
	RegistrationGone(ctx context.Context, name string, now time.Time) error
	// RegistrationUnfound is RegistrationGone of one whose mint was never answered and that GitHub does not show: it is
	// looked for once more, later.
	RegistrationUnfound(ctx context.Context, name string, now time.Time) error
	Intend(ctx context.Context, podUID string, generation int64, name string, scope fleet.Scope, now time.Time) (bool, error)
	RecordMint(ctx context.Context, podUID string, generation, runnerID int64, now time.Time) (bool, error)
	EndLease(ctx context.Context, podUID string, generation int64) error
	// Unclaim takes back a claim whose mint definitely never happened: the row goes, the job is queued again.
	Unclaim(ctx context.Context, podUID string, generation int64, now time.Time) (bool, error)
	// TakeForRelease gives a live claim that is not being minted a new generation, in order to release it.
	TakeForRelease(ctx context.Context, podUID string, expected, next int64, lease, now time.Time) (bool, error)
	// Release ends a live claim of whose registrations none may be alive: the row is spent, its job is queued again unless
	// it runs or has ended. False: the generation no longer holds, or a registration may be alive (EXCL-6).
	Release(ctx context.Context, podUID string, generation int64, proof string, now time.Time) (bool, error)
	Acknowledge(ctx context.Context, podUID string, generation int64, now time.Time) (bool, error)
	AcknowledgeTermination(ctx context.Context, podUID string, now time.Time) (bool, error)
	// Retire inserts retired rows for pods that have none and returns the state of every row, by UID.
	Retire(ctx context.Context, pods []Pod, now time.Time) (map[string]Claim, error)
	PodStopped(ctx context.Context, podUID string, endedAt time.Time, exitCode *int32) error
	// RegistrationsGone notes a proof that registrations are gone.
	RegistrationsGone(ctx context.Context, names []string, now time.Time) error
	// ProveEnded writes a proof into those spent or retired rows of the pods that have none, and returns their UIDs.
	ProveEnded(ctx context.Context, podUIDs []string, proof string) ([]string, error)
	// SessionsLost notes that pods were lost, if their jobs were running.
	SessionsLost(ctx context.Context, podUIDs []string, now time.Time) error
	// ForgetPod deletes the spent or retired row of a pod that is proven gone; false when it is still live.
	ForgetPod(ctx context.Context, podUID string) (bool, error)
	// Ended lists pods, up to most, whose rows are spent or retired and whose UIDs are not known.
	Ended(ctx context.Context, known []string, most int) ([]Pod, error)
}

// AdoptionStore keeps the runners that GitHub named and no live claim explains.
type AdoptionStore interface {
	// DueAdoptions takes at most MaxAdoptions that are due, and moves them on to later.
	DueAdoptions(ctx context.Context, now, later time.Time) ([]Adoption, error)
	// Adopt makes the pod busy again and charges the account, unless its job has ended in between (false). Without a job
	// (0) it is the one that GitHub named with that runner, or is bound when GitHub does; false when the claim is live
	// already.
	Adopt(ctx context.Context, a Adoption, pod Pod, pool Pool, now time.Time) (bool, error)
	CloseAdoption(ctx context.Context, runnerName string) error
}

// SignalsStore reads the input of scaling. Its methods do not wait out an outage.
type SignalsStore interface {
	// Backlog reads the lanes of those label sets that may have queued jobs, with the budgets of their accounts, as of
	// one moment. look gets them before any job is read, and returns for each lane how far to read it.
	Backlog(ctx context.Context, labelKeys []string, look func(Backlog) []Look) (Backlog, error)
	// SessionChanges returns by how much the number of open sessions of each pool changes in each of the minutes, the first of which is
	// since, where it grows from zero.
	SessionChanges(ctx context.Context, since time.Time, minutes int) ([]SessionChange, error)
	// ProvenEnds lists pods whose work was known by then, other than from the pod, to be over: the oldest first. Deleted
	// pods may be among them until their rows are forgotten.
	ProvenEnds(ctx context.Context, before time.Time) ([]ProvenEnd, error)
}

// DemandStore tells which jobs runners that register themselves are for. It does not wait out an outage.
type DemandStore interface {
	// LabelSetsOfLogins lists the label sets of the jobs of each account, by login in lower case and then by key.
	LabelSetsOfLogins(ctx context.Context, logins []string) (map[string][]LabelSet, error)
	// TargetJobs reads the jobs of scopes, and what is known of single jobs, as of one moment.
	TargetJobs(ctx context.Context, scopes []DemandScope, seen []int64) (TargetJobs, error)
}

// Forge is GitHub. Errors are those of package fleet: ErrRunnerBusy, ErrNotFound, ErrForbidden, ErrRejected,
// ErrUncertain and *RateLimitedError; it does not retry.
type Forge interface {
	Mint(ctx context.Context, installationID int64, req fleet.MintRequest) (fleet.JIT, error)
	RemoveRunner(ctx context.Context, installationID int64, scope fleet.Scope, runnerID int64) error
	// FindRunner asks GitHub's list by name. ErrNotFound means that the list was readable and has no such runner:
	// it is its own control read (EXCL-6).
	FindRunner(ctx context.Context, installationID int64, scope fleet.Scope, name string) (fleet.Registration, error)
	// ControlRead proves that the scope is readable just now.
	ControlRead(ctx context.Context, installationID int64, scope fleet.Scope) error
	// GroupAccess reads whether the jobs of a repository may use a runner group of its organization: the group of that name, or of that id
	// where name is empty. ErrNoRunnerGroup: there is no such group.
	GroupAccess(ctx context.Context, installationID int64, organization, name string, id int64, repository string) (fleet.GroupAccess, error)
	// MintRate is the last known state of the bucket that mints are counted in.
	MintRate(installationID int64) (fleet.RateState, bool)
}

// Roster is GitHub's own lists of runners, matched to pods by name: see package roster, whose Reader this is.
type Roster interface {
	Look(ctx context.Context, queries []roster.Query) (map[string]roster.Sighting, error)
}

// Cluster is what the server sees of Kubernetes: a watch for reads, two writes, one uncached read. A pod that is gone is no error of a write.
type Cluster interface {
	Pool(ref PoolRef) (Pool, bool)
	Pools() []Pool
	Pod(uid string) (Pod, bool)
	Pods() []Pod
	// StampOwner writes the claim's owner into the pod's label, which network policies select by, and what NoteOwner writes.
	StampOwner(ctx context.Context, pod Pod, owner Account) error
	// NoteOwner writes the owner's id beside the label, and nothing that a network policy selects by (TEN-8).
	NoteOwner(ctx context.Context, pod Pod, owner Account) error
	// Gone reports by an uncached read whether the pod with that UID no longer exists.
	Gone(ctx context.Context, namespace, name, uid string) (bool, error)
}

// Delivery is one webhook delivery.
type Delivery struct {
	GUID  string // empty: it was not delivered, but read at GitHub
	Event string
	At    time.Time
}

// Installation is what an installation event says.
type Installation struct {
	// Action is GitHub's (created, deleted, suspend, unsuspend, new_permissions_accepted), or RepositoriesRemoved or
	// RepositoriesAdded with Repositories.
	Action       string
	Account      Account  // with the id 0 where the event names none: the one that has the installation
	Suspended    bool     // as the event's installation says of itself
	Repositories []string // owner/name
}

// Actions of an Installation whose repositories are others than before.
const (
	RepositoriesRemoved = "repositories_removed"
	RepositoriesAdded   = "repositories_added"
)

// InstallationSync counts what a comparison with GitHub's list changed.
type InstallationSync struct {
	Corrected int // accounts that were corrected
	Missing   int // not in the list for the first time: nothing is changed yet
	Removed   int // not in the list for the second time
}

// RepositorySync counts what a comparison with GitHub's list of an installation's repositories changed.
type RepositorySync struct {
	Restored int // given back, without a webhook
	Renamed  int
	Missing  int // not in the list for the first time: nothing is changed yet
	Removed  int // not in the list for the second time
}

// Repository names one repository of an account.
type Repository struct {
	AccountID int64
	Name      string // owner/name
}

// LabelSet is one distinct set of labels that jobs ask for.
type LabelSet struct {
	Key    string
	Labels []string
}
