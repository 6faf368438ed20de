package guards

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

// Scenario is a short soak: the faults that matter and no others.
type Scenario struct {
	// Name is the scenario's name in the table.
	Name string
	// Says what happens in it.
	Says string
	// Kinds are dealt at random, by the seed, so many as Faults says.
	Kinds  []string
	Faults int
	// Steps happen under every seed.
	Steps []schedule.Step
	// Jobs are spread over Length; Load, if set, stands in their place.
	Jobs   int
	Load   []schedule.Batch
	Length time.Duration
	// Keep keeps the pool saturated instead.
	Keep *schedule.Saturation
	// Runners and Real are the sizes of the pools. Defaults: 6 and 0.
	Runners, Real int
	// Patience is how long objects may take to disappear at the end. Default: a minute, within which the sound product settles.
	Patience time.Duration
	// Server and Controller are arguments that are added to theirs.
	Server, Controller []string
}

// Schedule is what happens when, by the seed.
func (s Scenario) Schedule(seed uint64) (schedule.Schedule, error) {
	without := slices.DeleteFunc(schedule.Kinds(), func(kind string) bool { return slices.Contains(s.Kinds, kind) })
	plan, err := schedule.Make(schedule.Options{
		Seed: seed, Jobs: s.Jobs, Faults: s.Faults, Length: schedule.Duration(s.Length), Without: without,
	})
	if err != nil {
		return plan, fmt.Errorf("making the schedule %s: %w", s.Name, err)
	}
	plan.Steps = append(plan.Steps, s.Steps...)
	slices.SortStableFunc(plan.Steps, func(a, b schedule.Step) int { return int(a.At - b.At) })
	for i := range plan.Steps {
		plan.Steps[i].Number = i + 1
	}
	plan.Options.Faults = len(plan.Steps)
	if s.Load != nil {
		plan.Load, plan.Options.Jobs = s.Load, 0
		for _, b := range s.Load {
			plan.Options.Jobs += b.Jobs
		}
	}
	plan.Keep = s.Keep
	return plan, nil
}

// arguments are those of the soak's command.
func (s Scenario) arguments() []string {
	runners, patience := s.Runners, s.Patience
	if runners == 0 {
		runners = 6
	}
	if patience == 0 {
		patience = time.Minute
	}
	return []string{
		fmt.Sprint("-runners=", runners), fmt.Sprint("-real=", s.Real), fmt.Sprint("-patience=", patience),
		"-server-args=" + strings.Join(s.Server, " "), "-controller-args=" + strings.Join(s.Controller, " "),
	}
}

// at is a moment of a schedule.
func at(seconds float64) schedule.Duration { return schedule.Duration(seconds * float64(time.Second)) }

// gitHub is a fault of GitHub's that lasts from one moment to another.
func gitHub(from, length float64, fault schedule.Step) schedule.Step {
	fault.At, fault.For, fault.Kind, fault.Target = at(from), at(length), schedule.GitHub, schedule.GitHubItself
	return fault
}

// bursts are batches of jobs at once, repeated.
func bursts(account int, pool string, from, every, until float64, jobs int, each float64) []schedule.Batch {
	var all []schedule.Batch
	for t := from; t < until; t += every {
		all = append(all, schedule.Batch{At: at(t), Account: account, Pool: pool, Jobs: jobs, Each: at(each)})
	}
	return all
}
