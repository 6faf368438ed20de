package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Shape is how arrivals are spread.
type Shape string

// The shapes.
const (
	Even    Shape = "even"    // runs at equal distances
	Poisson Shape = "poisson" // a Poisson process of runs
	Burst   Shape = "burst"   // a stated number of runs at uniform moments of a stated time
)

// Plan says what is submitted.
type Plan struct {
	Shape Shape
	// Rate is in jobs a second, on average; not for Burst.
	Rate float64
	// Runs and Within are Burst's.
	Runs   int
	Within time.Duration
	// Jobs and For bound it: no more jobs, and none later than that.
	Jobs int
	For  time.Duration
	Seed uint64
}

// Arrival is one run to submit.
type Arrival struct {
	At   time.Duration // after the beginning
	Kind int           // index in Mix.Runs
	Jobs int
}

// Limits of a plan, which bound the memory of a schedule.
const (
	MaxJobs = 1_000_000
	maxRate = 100_000
)

func (p Plan) check() error {
	switch {
	case p.Shape != Even && p.Shape != Poisson && p.Shape != Burst:
		return fmt.Errorf("the shape %q is not known: use even, poisson or burst", p.Shape)
	case p.Jobs < 1 || p.Jobs > MaxJobs:
		return fmt.Errorf("%d jobs are not possible: give a number from 1 to %d", p.Jobs, MaxJobs)
	case p.For <= 0:
		return errors.New("the time to submit for must be more than 0")
	case p.Shape == Burst && (p.Runs < 1 || p.Runs > MaxJobs || p.Within <= 0):
		return fmt.Errorf("a burst needs 1 to %d runs and a time, not %d in %s", MaxJobs, p.Runs, p.Within)
	case p.Shape != Burst && !(p.Rate > 0 && p.Rate <= maxRate): // NaN is neither
		return fmt.Errorf("the rate must be more than 0 and at most %d jobs a second", maxRate)
	}
	return nil
}

// Schedule is when which runs are submitted, in order. The same plan and mix give the same schedule.
func Schedule(p Plan, mix Mix) ([]Arrival, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if len(mix.Runs) == 0 {
		return nil, errors.New("the mix has no runs")
	}
	// The kinds have a source of their own: another shape does not change what is drawn.
	times, kinds := rand.New(rand.NewPCG(p.Seed, 1)), rand.New(rand.NewPCG(p.Seed, 2))
	weights, mean := 0, 0.0
	for _, kind := range mix.Runs {
		weights += kind.Weight
		mean += float64(kind.Weight * kind.Jobs)
	}
	mean /= float64(weights)
	next := arrivals(p, mean, times)
	var schedule []Arrival
	for left := p.Jobs; left > 0; {
		at, more := next()
		if !more || at > p.For {
			break
		}
		a := Arrival{At: at, Kind: draw(mix, kinds.IntN(weights))}
		a.Jobs = min(mix.Runs[a.Kind].Jobs, left)
		left -= a.Jobs
		schedule = append(schedule, a)
	}
	return schedule, nil
}

func draw(mix Mix, at int) int {
	for i, kind := range mix.Runs {
		if at -= kind.Weight; at < 0 {
			return i
		}
	}
	return len(mix.Runs) - 1
}

// arrivals returns the times of runs with that number of jobs on average, one after the other.
func arrivals(p Plan, jobs float64, source *rand.Rand) func() (time.Duration, bool) {
	if p.Shape == Burst {
		return uniform(p.Runs, p.Within, source)
	}
	at := 0.0
	return func() (time.Duration, bool) {
		now := at
		gap := jobs / p.Rate
		if p.Shape == Poisson {
			gap *= source.ExpFloat64()
		}
		at += gap
		if now > p.For.Seconds() { // what lies beyond may not be a Duration
			return 0, false
		}
		return time.Duration(now * float64(time.Second)), true
	}
}

// uniform returns that number of uniform moments in order, without keeping them: the smallest of n that are left is at 1-(1-u)^(1/n) of
// what is left.
func uniform(runs int, within time.Duration, source *rand.Rand) func() (time.Duration, bool) {
	left, at := runs, 0.0
	return func() (time.Duration, bool) {
		if left == 0 {
			return 0, false
		}
		at += (1 - at) * first(source.Float64(), left)
		left--
		return min(within, time.Duration(at*float64(within))), true
	}
}
