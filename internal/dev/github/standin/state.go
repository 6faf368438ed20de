package standin

import (
	"container/list"
	"crypto/rsa"
	"slices"
	"strings"
	"time"
)

// The life of a job. assigned is shown to the outside as queued: GitHub says in_progress once the runner has it.
const (
	jobWaiting    = "waiting"
	jobQueued     = "queued"
	jobAssigned   = "assigned"
	jobInProgress = "in_progress"
	jobCompleted  = "completed"
)

// Conclusions of jobs and runs.
const (
	concludedSuccess   = "success"
	concludedFailure   = "failure"
	concludedCancelled = "cancelled"
	concludedSkipped   = "skipped"
)

const (
	typeOrganization = "Organization"
	typeUser         = "User"
	typeEnterprise   = "Enterprise"
)

// account is an organization or a user with the App installed, or an enterprise, which never has it.
type account struct {
	id           int64
	login        string
	kind         string
	installation int64
	installedAt  time.Time
	suspendedAt  time.Time        // zero: it is not
	repos        map[string]*repo // by lower-case name
	formerly     map[string]int64 // lower-case names that a repository had before, by its id
	scope        *scope           // organization-level runners; empty for a user
	jobGroups    map[string]*jobGroup
	groups       []string               // runner groups beside Default; their ids count from 2
	access       map[string]GroupAccess // of groups that serve others than a new one does, by lower-case name
	enterprise   *account               // that it belongs to
	members      []*account             // of an enterprise
	announced    bool                   // its "installation created" webhook was sent
}

// installed reports whether the account has the App now. An account that uninstalled it keeps its runners and jobs; only the App no longer
// receives their events.
func (a *account) installed() bool { return a.installation != 0 }

// listens reports whether the App gets the account's events.
func (a *account) listens() bool { return a.installed() && a.suspendedAt.IsZero() }

type repo struct {
	id     int64
	name   string
	owner  *account
	scope  *scope
	runSeq int64
	public bool
}

func (r *repo) fullName() string { return r.owner.login + "/" + r.name }

// scope is where runners register: an organization, a repository or an enterprise.
type scope struct {
	path    string // "acme", "acme/app" or "enterprises/acme"
	owner   *account
	repo    *repo // nil for an organization or an enterprise
	byName  map[string]*runner
	ordered []*runner               // by ascending id
	idle    map[string]*runnerGroup // by label set and group
}

func newScope(path string, owner *account, r *repo) *scope {
	return &scope{path: path, owner: owner, repo: r, byName: map[string]*runner{}, idle: map[string]*runnerGroup{}}
}

func (sc *scope) insert(rn *runner) {
	sc.byName[strings.ToLower(rn.name)] = rn
	sc.ordered = append(sc.ordered, rn)
}

func (sc *scope) remove(rn *runner) {
	delete(sc.byName, strings.ToLower(rn.name))
	at, found := slices.BinarySearchFunc(sc.ordered, rn.id, func(other *runner, id int64) int { return int(other.id - id) })
	if found {
		sc.ordered = slices.Delete(sc.ordered, at, at+1)
	}
}

// runner is a registration.
type runner struct {
	id         int64
	name       string
	scope      *scope
	labels     labelSet
	system     []string // those of its labels that GitHub's runner gave itself
	groupID    int64
	static     bool // takes job after job, and stays registered
	os         string
	workFolder string
	clientID   string
	key        *rsa.PublicKey
	createdAt  time.Time

	session     *session
	polls       int // polls held right now
	lastContact time.Time
	wake        chan struct{} // closed and replaced to wake the held poll
	removed     bool
	ending      string    // the session that outlives the registration: of a runner whose one job it has completed
	endsAt      time.Time // when ending ends on its own

	job             *job // assigned or running
	cancelMessage   int64
	cancelDelivered bool
	busyHiddenUntil time.Time
	intended        *job // the job it was probably minted for; only the "different" fault reads it
	idleGroup       *runnerGroup
	idleElement     *list.Element
	offlineCheck    bool          // a deadline for its offline state is pending
	starved         bool          // a fault: no job is given to it
	cleanupAfter    time.Duration // a fault: how soon it is removed when it is offline; 0: the default

	onlineAt time.Time // its first session
	sessions int
	given    []int64 // jobs assigned to it
	ran      []int64 // those that it acquired
}

type session struct {
	id        string
	createdAt time.Time
}

func (rn *runner) signal() {
	close(rn.wake)
	rn.wake = make(chan struct{})
}

// ends reports whether the session is that of a runner that has done its one job and has not ended it yet.
func (rn *runner) ends(sessionID string, now time.Time) bool {
	return rn.removed && rn.ending != "" && rn.ending == sessionID && now.Before(rn.endsAt)
}

// online reports whether GitHub would show the runner as online.
func (rn *runner) online(now time.Time, grace time.Duration) bool {
	return rn.session != nil && (rn.polls > 0 || now.Sub(rn.lastContact) < grace)
}

// run is one execution of a workflow file.
type run struct {
	id           int64
	number       int64
	repo         *repo
	workflowID   int64
	workflowName string
	fileName     string
	event        string
	branch       string
	sha          string
	createdAt    time.Time
	updatedAt    time.Time
	startedAt    time.Time
	completedAt  time.Time
	conclusion   string
	held         bool // jobs wait for approval
	jobs         []*job
	byKey        map[string]*job
	plan         *plan
	submission   Submission
	planID       string    // GUID: the runner protocol's name of the run
	attempt      int       // 1 is the first
	attemptedAt  time.Time // the latest attempt's beginning
	carried      map[string]carried
}

func (r *run) status() string {
	if r.conclusion != "" {
		return jobCompleted
	}
	status := jobQueued
	for _, j := range r.jobs {
		if j.attempt != r.attempt {
			continue
		}
		switch j.state {
		case jobInProgress, jobCompleted:
			return jobInProgress
		case jobWaiting:
			status = jobWaiting
		}
	}
	return status
}

// job is one job of a run.
type job struct {
	id      int64
	run     *run
	key     string
	name    string
	labels  labelSet
	timeout time.Duration
	build   func(messageInput) ([]byte, error)

	state      string
	conclusion string
	reason     string
	seq        int64 // place in the queue, kept when it is queued again

	createdAt   time.Time
	queuedAt    time.Time
	assignedAt  time.Time
	startedAt   time.Time
	completedAt time.Time
	renewedAt   time.Time

	guid         string // the runner protocol's name of the job
	requestID    string // of the current assignment
	messageID    int64
	acknowledged bool
	runner       *runner // current assignment
	runnerID     int64   // of the runner that acquired it
	runnerName   string
	groupID      int64
	groupName    string
	token        string // the job's own access token
	idToken      bool   // it may have tokens that prove what it is

	assignments   int
	acquisitions  int
	acquirers     []string
	repeats       int // the same runner asked again for the same job
	lost          bool
	cancelling    bool
	steps         []StepView
	wants         string // the runner group that its runs-on names
	group         *jobGroup
	groupElement  *list.Element
	differentFrom time.Time     // since when the "different" fault has held it back
	queueLimit    time.Duration // a fault: the longest time in the queue; 0: as everywhere
	cancelAt      time.Time     // a fault: when it is cancelled
	attempt       int
	requeues      int
	given         []Given
}

// orchestration names the job in the logs of services and runners.
func (j *job) orchestration() string { return j.run.planID + "." + j.guid }

// visible is the job's state as REST and webhooks name it.
func (j *job) visible() string {
	if j.state == jobAssigned {
		return jobQueued
	}
	return j.state
}
