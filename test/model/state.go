package model

// Bounds of the state. A configuration may use less.
const (
	maxPods = 2
	maxJobs = 2
	mints   = 2 // registrations of a pod that matter at one time; a further mint is refused, as GitHub may refuse any
	maxRegs = maxPods * mints
)

// state is everything that a step may depend on. It holds bytes alone, so that it can be compared and hashed as it is.
//
// Pods and jobs count from 0. A registration is named by 1 + pod*mints + n, a job in a row by 1 + job; 0 is none.
type state struct {
	pod   [maxPods]pod
	db    ledger
	reg   [maxRegs]registration // GitHub's truth
	job   [maxJobs]githubJob    // GitHub's truth
	exec  [maxJobs]uint8        // the registration that GitHub gave the job to
	hooks [maxJobs]uint8        // webhooks on their way, by kind
	op    [2]op
	rec   recovery
	// confirmed are the registrations, a bit each, that GitHub has called busy when it was asked whether to adopt them.
	confirmed uint8
	scopeDown uint8 // GitHub answers 403 or 404 for everything
	lag       uint8 // 1: GitHub shows, and treats, what works as idle, and has not heard yet of jobs that run
	backup    uint8
	backupDB  ledger
	faults    uint8 // that may still happen
}

// pod is what is true of a pod, what the API server shows of it, and what the controller last saw.
type pod struct {
	life   life
	poller poller
	runner runner
	jit    uint8 // the registration whose configuration is staged
	gen    uint8 // the generation that the poller will acknowledge
	shown  shown // by the API server
	seen   uint8 // 1: the server's watch shows the deletion
	lost   uint8 // 1: its node is gone; what is shown of it changes no more
	worked uint8 // 1: the worker of its job has started; its own sign of that is shown some time later
	term   uint8 // 1: SIGTERM has reached it, and it has no deletionTimestamp: its node is being shut down

	leave leave
	view  shown // what the controller decides on, however old
}

type life uint8

const (
	up      life = iota
	deleted      // by the fleet
	dropped      // by others, at any moment: kubectl delete, an eviction, a drain
	gone
)

type poller uint8

const (
	pollIdle         poller = iota // between two requests
	pollWaiting                    // a replica holds its request
	pollStaged                     // the configuration is staged, and not released to the runner
	pollDone                       // exited 0 after the release
	pollDismissed                  // exited 0 after 410; an empty file is staged, which ends the runner's container
	pollFailed                     // exited otherwise, nothing staged
	pollFailedStaged               // exited otherwise, after staging
)

func (p poller) ended() bool { return p >= pollDone }

// released: a supervisor takes what a poller that has died had staged.
func (p poller) released() bool { return p == pollDone || p == pollFailedStaged }

func (p poller) staged() bool { return p == pollStaged || p == pollDone || p == pollFailedStaged }

type runner uint8

const (
	runWaiting    runner = iota // for the file
	runConfigured               // the listener starts, with its configuration
	runOnline                   // its session is open; the registration says idle or busy
	runExited
	runHung // alive, and will never do anything again
)

// shown is a pod's status and labels, as bits.
type shown uint8

const (
	shownOwner     shown = 1 << iota // the owner label
	shownExited0                     // the poller has exited 0
	shownFailed                      // the poller has exited otherwise
	shownNotReady                    // the container idle has exited: a job has started
	shownRunnerEnd                   // the runner's container has ended
)

func (s shown) pollerEnded() bool { return s&(shownExited0|shownFailed) != 0 }
func (s shown) terminal() bool    { return s.pollerEnded() && s&shownRunnerEnd != 0 }

// claim is a row of runner_claims.
type claim struct {
	st   uint8 // index of fleet.ClaimStates
	gen  uint8
	job  uint8
	name uint8 // the name of its last or next registration
	ack  uint8
	// proof: it is known, other than from the pod, that the work is over.
	proof uint8
	seq   uint8 // of the latest request that it was made for, or taken over by
}

// ledger is what a backup holds.
type ledger struct {
	claim [maxPods]claim
	reg   [maxRegs]row
	job   [maxJobs]uint8 // index of fleet.JobStates
	adopt uint8          // runner_adoptions, a bit for each registration
}

// row of runner_registrations.
type row uint8

const (
	rowNone row = iota
	rowOpen     // written down before the mint, and not known to be gone
	rowGone
)

type registration uint8

const (
	regNone    registration = iota
	regPending              // the request is on the wire
	regOffline
	regOnline
	regBusy
	regGone
	regShadow // removed while it was busy: its job runs on, and GitHub does not list it
)

func (r registration) alive() bool { return r == regOffline || r == regOnline || r == regBusy }
func (r registration) works() bool { return r == regBusy || r == regShadow }

type githubJob uint8

const (
	ghQueued githubJob = iota
	ghRunning
	ghCompleted
	ghCancelled
)

func (j githubJob) ended() bool { return j >= ghCompleted }

const (
	hookQueued uint8 = 1 << iota
	hookStarted
	hookCompleted
)

// op is one request of a pod's poller at a server replica. A crash loses it.
type op struct {
	at   opStep
	pod  uint8
	gen  uint8
	reg  uint8
	conn uint8 // 1: the poller still listens
	seq  uint8 // the pod numbers its requests: a later one has the larger number
}

type opStep uint8

const (
	opFree   opStep = iota
	opRead          // about to read the pod's row
	opMatch         // waits for a job
	opServe         // has just inserted a claim
	opRemove        // has taken the claim over, removes what was minted for it
	opIntend        // about to write the next name down and ask GitHub
	opMint          // GitHub was asked
	opAnswer        // recorded; the answer is on its way
)

const (
	backupNone uint8 = iota
	backupTaken
	backupHeld // restored: nothing is handed out or granted until claims are rebuilt (CLAIM-17)
	backupRestored
)

func podOf(reg uint8) int             { return int(reg-1) / mints }
func regOf(p, n int) uint8            { return uint8(p*mints + n + 1) } //nolint:gosec // at most maxRegs
func bit(reg uint8) uint8             { return 1 << (reg - 1) }
func jobRef(j int) uint8              { return uint8(j + 1) } //nolint:gosec // at most maxJobs
func (s *state) claimOf(p int) *claim { return &s.db.claim[p] }

// each calls visit for the registrations of a pod until it answers no.
func (s *state) eachReg(p int, visit func(reg uint8) bool) {
	for n := range mints {
		if !visit(regOf(p, n)) {
			return
		}
	}
}

// busy: GitHub has given a job to a registration of the pod.
func (s *state) busy(p int) bool {
	return s.reg[p*mints].works() || s.reg[p*mints+1].works()
}

// mayStart: the pod holds a configuration that GitHub still honours, and its runner can still act on it.
func (s *state) mayStart(p int) bool {
	q := &s.pod[p]
	if q.jit == 0 || q.runner >= runExited || !q.poller.staged() {
		return false
	}
	r := s.reg[q.jit-1]
	return r == regOffline || r == regOnline
}

// open: the ledger knows of a registration of the pod that is not proven gone.
func (s *state) open(p int) bool {
	return s.db.reg[p*mints] == rowOpen || s.db.reg[p*mints+1] == rowOpen
}
