package selfregistering

import "time"

// LongestGap is the longest time between two decisions that leaves earlier observations valid: after a longer one it is
// unknown what was needed in between, and the cooldown begins again.
const LongestGap = time.Minute

// Input is everything that a decision reads.
type Input struct {
	Now      time.Time
	Spec     Spec
	Runners  Runners
	Evidence Evidence
	State    State
}

// Spec is the owner's autoscaling block.
type Spec struct {
	// Owner is the owner's name: its runners are named after it. Rivals are the names of all other owners; a runner belongs
	// to the one whose name is the longest that it begins with.
	Owner  string
	Rivals []string
	// Min and Max bound the number, busy runners included. Max counts where they contradict each other.
	Min, Max int
	// Cooldown is how long fewer runners must have been enough before there are fewer.
	Cooldown time.Duration
	// Jobs: nil when jobs are not considered.
	Jobs *Jobs
	// Percentage: nil when the share of busy runners is not considered.
	Percentage *Percentage
	// Schedules in their order: the first that is active counts.
	Schedules []Schedule
}

// Jobs says how jobs are counted.
type Jobs struct {
	// MinIdle is how many runners wait beside those that work.
	MinIdle int
	// Lag is how long after a runner has taken a job the sources may still call that job queued.
	Lag time.Duration
}

// Runners are the owner's, as it counts them itself.
type Runners struct {
	// Exist and are not finished: those that boot, are idle, work, or are being removed.
	Exist int
	// Busy show a sign of work.
	Busy int
	// CompleteAt is when all wanted ones were last there, or had been asked for; zero where the owner does not say.
	CompleteAt time.Time
}

// State is what is remembered from one decision to the next. The first four are kept in the owner's status and survive a
// restart; the others do not, and need not.
type State struct {
	// Desired is the number in force; of no meaning while Decided is false.
	Desired int
	Decided bool
	// ScaledAt is when the number was last found to be needed, LastScaleDown when it was last lowered.
	ScaledAt, LastScaleDown time.Time

	// Seen is when the last decision was made. Zero: this process has made none.
	Seen time.Time
	// Needed are the numbers that were needed within the cooldown, the largest and oldest first.
	Needed []Mark
	// Spare are the busy runners that no running job explained within Jobs.Lag, the fewest and oldest first.
	Spare []Mark
}

// Mark is a number at a time.
type Mark struct {
	At    time.Time
	Count int
}

// Result is a decision.
type Result struct {
	// State to remember, with the number in it.
	State State
	// Queued and Running are the jobs that were counted.
	Queued, Running int
	// Schedule that is active; empty for none.
	Schedule string
	// Problem is why the decision lacks data, in a sentence; the number did not fall because of it.
	Problem string
	// Needed is how many runners would be enough just now, as far as is known.
	Needed int
	// Next is when another decision may come to something else although nothing else has changed; zero: never.
	Next time.Time
	// Reason is what Needed was needed for, in words.
	Reason string
}
