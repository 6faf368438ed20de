package fleet

import "time"

// Step is a point in the life of a workflow job.
type Step string

// The steps of a job in the order of its life.
const (
	StepQueued       Step = "queued"       // at GitHub
	StepReceived     Step = "received"     // GitHub's event was taken
	StepApproved     Step = "approved"     // it had waited at GitHub, and may run
	StepClaimed      Step = "claimed"      // a pod was chosen
	StepMinted       Step = "registered"   // its runner is registered
	StepAcknowledged Step = "acknowledged" // the pod has its configuration
	StepExecuting    Step = "running"      // GitHub has assigned it
	StepEnded        Step = "completed"
)

// Phase is what a job goes through to get to a step.
type Phase string

// The phases, each named by what takes the time.
const (
	PhaseWebhook  Phase = "webhook"      // GitHub tells us
	PhaseApproval Phase = "approval"     // a person has to approve, or a concurrency group holds it back
	PhaseDispatch Phase = "dispatch"     // it waits for room and a warm pod
	PhaseNoPool   Phase = "no_pool"      // the same of a job that no pool serves
	PhaseMint     Phase = "registration" // GitHub registers the runner
	PhaseHandover Phase = "handover"     // the pod is given its configuration
	PhaseStart    Phase = "start"        // the runner connects, and GitHub assigns the job
	PhaseRun      Phase = "run"
)

// Words say for people what a phase was spent on; empty for one that is not known.
func (p Phase) Words() string {
	return map[Phase]string{
		PhaseWebhook:  "webhook delivery",
		PhaseApproval: "pending at GitHub: approval or concurrency group",
		PhaseDispatch: "waiting for quota or an idle runner",
		PhaseNoPool:   "waiting; no pool serves its labels",
		PhaseMint:     "registration at GitHub",
		PhaseHandover: "configuration delivered",
		PhaseStart:    "runner connected, job assigned by GitHub",
		PhaseRun:      "running",
	}[p]
}

// Words are what people call a step; empty for one that is not known.
func (s Step) Words() string {
	return map[Step]string{
		StepQueued:       "queued",
		StepReceived:     "received",
		StepApproved:     "approved",
		StepClaimed:      "assigned",
		StepMinted:       "registered",
		StepAcknowledged: "configured",
		StepExecuting:    "running",
		StepEnded:        "completed",
	}[s]
}

// whole reports whether a step's time is GitHub's word, which has no fractions of a second.
func (s Step) whole() bool { return s == StepQueued || s == StepExecuting || s == StepEnded }

// JobTimes are the steps that are known of one job; zero: not known, or not taken yet. Queued, Executing and Ended are by GitHub's clock
// and in whole seconds, the others are by the database's.
type JobTimes struct {
	Queued, Received, Approved, Claimed, Minted, Acknowledged, Executing, Ended time.Time
}

// StepAt is a step that was taken.
type StepAt struct {
	Step Step
	At   time.Time
	// Whole: At is GitHub's word, in whole seconds.
	Whole bool
}

// Spent is how long a phase took.
type Spent struct {
	Phase Phase
	Time  time.Duration
	// Whole: the phase begins or ends with a time of GitHub's, so that Time is right to the second only.
	Whole bool
}

type stage struct {
	StepAt
	phase Phase
	// measured: the phase before it has both its ends by the database's clock.
	measured bool
}

// stages are the steps that were taken. None is before the one above it: two clocks have made them, GitHub's seconds are cut off, and a runner that was
// claimed for one job may be given a later one. A step that comes too early is taken to be when the one above it was.
func (t JobTimes) stages() []stage {
	all := []stage{
		{StepAt: StepAt{Step: StepQueued, At: t.Queued}},
		{StepAt: StepAt{Step: StepReceived, At: t.Received}, phase: PhaseWebhook},
		{StepAt: StepAt{Step: StepApproved, At: t.Approved}, phase: PhaseApproval},
		{StepAt: StepAt{Step: StepClaimed, At: t.Claimed}, phase: PhaseDispatch},
		{StepAt: StepAt{Step: StepMinted, At: t.Minted}, phase: PhaseMint},
		{StepAt: StepAt{Step: StepAcknowledged, At: t.Acknowledged}, phase: PhaseHandover},
		{StepAt: StepAt{Step: StepExecuting, At: t.Executing}, phase: PhaseStart},
		{StepAt: StepAt{Step: StepEnded, At: t.Ended}, phase: PhaseRun},
	}
	taken := all[:0]
	for _, s := range all {
		if s.At.IsZero() {
			continue
		}
		s.Whole = s.Step.whole()
		if len(taken) > 0 {
			above := taken[len(taken)-1]
			s.measured = !s.Whole && !above.Step.whole()
			if s.At.Before(above.At) {
				s.At, s.Whole = above.At, above.Whole
			}
		}
		taken = append(taken, s)
	}
	return taken
}

// Steps are those that were taken, in the order of a job's life and of their times.
func (t JobTimes) Steps() []StepAt {
	var steps []StepAt
	for _, s := range t.stages() {
		steps = append(steps, s.StepAt)
	}
	return steps
}

// Split says where the time went, up to the last step that was taken. No time is counted twice, and none is negative: what a step came
// too early counts for nothing. The time of a step that is not known is part of the next one's phase.
func (t JobTimes) Split() []Spent {
	var split []Spent
	taken := t.stages()
	for i, s := range taken {
		if i > 0 {
			split = append(split, Spent{Phase: s.phase, Time: s.At.Sub(taken[i-1].At), Whole: !s.measured})
		}
	}
	return split
}

// Open is the current phase of a job in this state, and its start; false for a job that is completed, or without a known step.
func (t JobTimes) Open(state JobState) (phase Phase, since time.Time, ok bool) {
	taken := t.stages()
	if len(taken) == 0 || state.Terminal() || state == JobAbsent {
		return "", time.Time{}, false
	}
	switch state {
	case JobWaiting:
		phase = PhaseApproval
	case JobClaimed:
		phase = PhaseMint
	case JobMinted:
		phase = PhaseHandover
		if !t.Acknowledged.IsZero() {
			phase = PhaseStart
		}
	case JobExecuting:
		phase = PhaseRun
	default:
		phase = PhaseDispatch
	}
	return phase, taken[len(taken)-1].At, true
}
