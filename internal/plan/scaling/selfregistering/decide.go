package selfregistering

import (
	"fmt"
	"strings"
	"time"
)

// mostProblems is how many are named: a person reads them.
const mostProblems = 3

// Decide returns the desired number of runners. Same input, same output (SCALE-4).
func Decide(in Input) Result {
	p := planner{in: in, state: in.State, now: in.Now}
	if !p.state.Decided { // until now the owner had what it has
		p.state.Desired = p.clamp(in.Runners.Exist)
	}
	p.look()
	p.settle()
	return p.out
}

// planner is one decision under way.
type planner struct {
	in    Input
	now   time.Time
	state State
	out   Result

	// evident is the number that jobs and minimum need, as far as is known.
	evident int
	blind   bool
}

func (p *planner) clamp(n int) int { return max(0, min(n, p.in.Spec.Max)) }

// look finds out how many runners are needed.
func (p *planner) look() {
	least, name, next, problem := p.in.Spec.minimum(p.now)
	p.out.Schedule, p.out.Next = name, next
	p.evident, p.out.Reason = least, fmt.Sprintf("at least %d", least)
	if name != "" {
		p.out.Reason += " by schedule " + name
	}
	var problems []string
	if problem != "" {
		problems = append(problems, problem)
	}
	if jobs := p.in.Spec.Jobs; jobs != nil {
		demand := Gather(p.in.Evidence, p.in.Spec.owns)
		p.blind = demand.Blind()
		problems = append(problems, demand.Problems...)
		p.raise(p.jobs(*jobs, demand))
	}
	p.out.Needed = p.evident
	if share := p.in.Spec.Percentage; share != nil {
		number, why := share.wants(p.state.Desired, p.in.Runners, p.in.Spec.Jobs != nil)
		if number > p.out.Needed {
			p.out.Needed, p.out.Reason = number, why
		}
	}
	if p.out.Needed > p.in.Spec.Max {
		p.out.Reason += fmt.Sprintf(", and the maximum is %d", p.in.Spec.Max)
	}
	p.evident, p.out.Needed = p.clamp(p.evident), p.clamp(p.out.Needed) // 6.1
	p.blind = p.blind || len(problems) > 0
	if more := len(problems) - mostProblems; more > 0 {
		problems = append(problems[:mostProblems:mostProblems], fmt.Sprintf("and %d more", more))
	}
	p.out.Problem = strings.Join(problems, "; ")
}

func (p *planner) raise(number int, why string) {
	if number > p.evident {
		p.evident, p.out.Reason = number, why
	}
}

// jobs is the number of runners that jobs need: the busy ones, and beside them one for each queued job, or minIdle if that is more (6.10).
// Jobs beyond the maximum count, too: they are served as soon as there is room (6.5).
func (p *planner) jobs(spec Jobs, demand Demand) (int, string) {
	queued, running, busy := len(demand.Queued), len(demand.Running), p.in.Runners.Busy
	p.out.Queued, p.out.Running = queued, running
	// A runner shows that it is busy before any source says which job it has. For that time the job is not counted a
	// second time; afterwards the runner does something else, such as the end of a former job.
	spare := max(0, busy-running)
	if p.state.gap(p.now) {
		p.state.Spare = []Mark{{p.now, 0}}
	}
	p.state.Spare = push(p.state.Spare, spec.Lag, -1, p.now, spare)
	waiting := max(0, queued-(spare-p.state.Spare[0].Count))
	return max(busy, running) + max(spec.MinIdle, waiting), fmt.Sprintf("%d running and %d queued", running, queued)
}

// settle makes the number of what is needed: at once when it rises, and after the cooldown when it falls.
func (p *planner) settle() {
	before := p.state.Desired
	needed := p.out.Needed
	if p.blind {
		needed = max(needed, before) // POOL-8: what cannot be seen does not lower a number
	}
	if p.state.gap(p.now) { // what was needed was not observed
		p.state.Needed = []Mark{{p.now, max(before, needed)}}
	}
	p.state.Needed = push(p.state.Needed, p.in.Spec.Cooldown, 1, p.now, needed)
	desired := p.clamp(max(needed, min(before, p.state.Needed[0].Count)))
	if desired > needed {
		p.out.Next = earlier(p.out.Next, p.state.Needed[0].At.Add(p.in.Spec.Cooldown))
	}
	if desired > before || p.held() {
		p.state.ScaledAt = p.now
	}
	if desired < before {
		p.state.LastScaleDown = p.now
	}
	p.state.Desired, p.state.Decided, p.state.Seen = desired, true, p.now
	p.out.State = p.state
}

// held reports whether jobs or the minimum need runners that are missing, while their owner assumes that none is needed: all
// existed since they were last found to be needed (RUN-4). The owner's times are those of its status, in whole seconds.
func (p *planner) held() bool {
	complete := p.in.Runners.CompleteAt
	return p.evident > p.in.Runners.Exist && !p.state.ScaledAt.IsZero() &&
		!complete.IsZero() && !complete.Before(p.state.ScaledAt.Truncate(time.Second))
}
