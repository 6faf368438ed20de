package fleet

// JobState is the state of one workflow job as Bullpen knows it.
type JobState string

// The states of a workflow job. JobAbsent is never stored: it is the state of an unknown job.
const (
	JobAbsent    JobState = ""
	JobWaiting   JobState = "waiting"   // approval or concurrency group: kept, not dispatchable
	JobQueued    JobState = "queued"    // may be handed to a runner
	JobClaimed   JobState = "claimed"   // a pod's claim was made for it
	JobMinted    JobState = "minted"    // a registration was minted by that claim
	JobExecuting JobState = "executing" // GitHub said in_progress
	JobCompleted JobState = "completed"
	JobCancelled JobState = "cancelled"
	JobStale     JobState = "stale" // not reported for a day
)

// JobStates lists every state, JobAbsent included, in the order of a job's life.
func JobStates() []JobState {
	return []JobState{
		JobAbsent, JobWaiting, JobQueued, JobClaimed, JobMinted, JobExecuting, JobCompleted, JobCancelled, JobStale,
	}
}

// Terminal reports whether the state is final: terminal states never move (CLAIM-3).
func (s JobState) Terminal() bool {
	return s == JobCompleted || s == JobCancelled || s == JobStale
}

// JobEvent is something that happens to a job.
type JobEvent string

// The events of a job's life. Those up to JobEventCancelled come from GitHub, the others from the fleet.
const (
	JobEventWaiting   JobEvent = "waiting"
	JobEventQueued    JobEvent = "queued"
	JobEventStarted   JobEvent = "in_progress"
	JobEventCompleted JobEvent = "completed"
	JobEventCancelled JobEvent = "cancelled"
	JobEventClaim     JobEvent = "claim"
	JobEventMint      JobEvent = "mint"
	JobEventRelease   JobEvent = "release"  // its claim was given back, or another runner took its place
	JobEventTransfer  JobEvent = "transfer" // a minted claim whose own job runs elsewhere takes it over (CLAIM-9)
	JobEventExpire    JobEvent = "expire"
	JobEventReturned  JobEvent = "returned" // GitHub says that it waits for a runner again, although it had begun
)

// JobEvents lists every event.
func JobEvents() []JobEvent {
	return []JobEvent{
		JobEventWaiting, JobEventQueued, JobEventStarted, JobEventCompleted, JobEventCancelled,
		JobEventClaim, JobEventMint, JobEventRelease, JobEventTransfer, JobEventExpire, JobEventReturned,
	}
}

// Outcome says what a transition table decided.
type Outcome int

// Move changes the state, Keep acknowledges the event and changes nothing (a late or doubled message), Refuse is a
// fault of the caller: the event makes no sense in that state.
const (
	Refuse Outcome = iota
	Keep
	Move
)

// String names the outcome for test output and logs.
func (o Outcome) String() string {
	switch o {
	case Move:
		return "move"
	case Keep:
		return "keep"
	default:
		return "refuse"
	}
}

type jobPair struct {
	state JobState
	event JobEvent
}

// jobMoves holds every pair that changes a job's state.
var jobMoves = map[jobPair]JobState{
	{JobAbsent, JobEventWaiting}:   JobWaiting,
	{JobAbsent, JobEventQueued}:    JobQueued,
	{JobAbsent, JobEventStarted}:   JobExecuting,
	{JobAbsent, JobEventCompleted}: JobCompleted,
	{JobAbsent, JobEventCancelled}: JobCancelled,

	{JobWaiting, JobEventQueued}:    JobQueued,
	{JobWaiting, JobEventStarted}:   JobExecuting,
	{JobWaiting, JobEventCompleted}: JobCompleted,
	{JobWaiting, JobEventCancelled}: JobCancelled,
	{JobWaiting, JobEventExpire}:    JobStale,

	{JobQueued, JobEventClaim}:     JobClaimed,
	{JobQueued, JobEventTransfer}:  JobMinted,
	{JobQueued, JobEventStarted}:   JobExecuting,
	{JobQueued, JobEventCompleted}: JobCompleted,
	{JobQueued, JobEventCancelled}: JobCancelled,
	{JobQueued, JobEventExpire}:    JobStale,

	{JobClaimed, JobEventMint}:      JobMinted,
	{JobClaimed, JobEventRelease}:   JobQueued,
	{JobClaimed, JobEventStarted}:   JobExecuting,
	{JobClaimed, JobEventCompleted}: JobCompleted,
	{JobClaimed, JobEventCancelled}: JobCancelled,

	{JobMinted, JobEventRelease}:   JobQueued,
	{JobMinted, JobEventStarted}:   JobExecuting,
	{JobMinted, JobEventCompleted}: JobCompleted,
	{JobMinted, JobEventCancelled}: JobCancelled,

	{JobExecuting, JobEventCompleted}: JobCompleted,
	{JobExecuting, JobEventCancelled}: JobCancelled,
	{JobExecuting, JobEventReturned}:  JobQueued,
}

// jobKeeps holds the pairs that GitHub's at-least-once, unordered delivery makes normal, and that change nothing.
// A terminal state keeps every event of GitHub (CLAIM-4) and is handled in NextJobState.
var jobKeeps = map[jobPair]bool{
	{JobWaiting, JobEventWaiting}:   true,
	{JobQueued, JobEventWaiting}:    true,
	{JobQueued, JobEventQueued}:     true,
	{JobQueued, JobEventRelease}:    true,
	{JobClaimed, JobEventWaiting}:   true,
	{JobClaimed, JobEventQueued}:    true,
	{JobMinted, JobEventWaiting}:    true,
	{JobMinted, JobEventQueued}:     true,
	{JobMinted, JobEventMint}:       true, // a re-mint by the same claim
	{JobExecuting, JobEventWaiting}: true,
	{JobExecuting, JobEventQueued}:  true,
	{JobExecuting, JobEventStarted}: true,
	{JobExecuting, JobEventMint}:    true, // in_progress overtook the mint's own answer
	{JobExecuting, JobEventRelease}: true, // it runs elsewhere; the claim goes, the job does not

	{JobWaiting, JobEventReturned}: true,
	{JobQueued, JobEventReturned}:  true,
}

// NextJobState is the whole job state machine: the state that follows, and whether the event moves the job, leaves
// it as it is, or has no business there.
func NextJobState(state JobState, event JobEvent) (JobState, Outcome) {
	if next, ok := jobMoves[jobPair{state, event}]; ok {
		return next, Move
	}
	if jobKeeps[jobPair{state, event}] {
		return state, Keep
	}
	if state.Terminal() && event != JobEventClaim && event != JobEventTransfer {
		return state, Keep // CLAIM-3, CLAIM-4: terminal states never change, not by late or repeated events
	}
	return state, Refuse
}
