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
		PhaseMint:     "registration at GitHub",
		PhaseHandover: "configuration delivered",
		PhaseStart:    "runner connected, job assigned by GitHub",
		PhaseRun:      "running",
	}[p]
}

// JobTimes are the steps that are known of one job; zero: not known, or not taken yet. Queued, Executing and Ended are by GitHub's clock
// and in whole seconds, the others are by the database's.
type JobTimes struct {
	Queued, Received, Approved, Claimed, Minted, Acknowledged, Executing, Ended time.Time
}

// StepAt is a step that was taken.
type StepAt struct {
	Step Step
	At   time.Time
}

// Spent is how long a phase took.
type Spent struct {
	Phase Phase
	Time  time.Duration
}

type stage struct {
	StepAt
	phase Phase
}

func (t JobTimes) stages() []stage {
	all := []stage{
		{StepAt{StepQueued, t.Queued}, ""},
		{StepAt{StepReceived, t.Received}, PhaseWebhook},
		{StepAt{StepApproved, t.Approved}, PhaseApproval},
		{StepAt{StepClaimed, t.Claimed}, PhaseDispatch},
		{StepAt{StepMinted, t.Minted}, PhaseMint},
		{StepAt{StepAcknowledged, t.Acknowledged}, PhaseHandover},
		{StepAt{StepExecuting, t.Executing}, PhaseStart},
		{StepAt{StepEnded, t.Ended}, PhaseRun},
	}
	taken := all[:0]
	for _, s := range all {
		if !s.At.IsZero() {
			taken = append(taken, s)
		}
	}
	return taken
}

// Steps are those that were taken, in the order of a job's life. Their times may have another order: two clocks have made
// them, and a runner that was claimed for one job may be given a later one.
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
	var reached time.Time
	for i, s := range t.stages() {
		if i > 0 && s.phase != "" {
			split = append(split, Spent{Phase: s.phase, Time: max(0, s.At.Sub(reached))})
		}
		if i == 0 || s.At.After(reached) {
			reached = s.At
		}
	}
	return split
}
