package simulate

import (
	"math"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
)

// Result is what one policy would have come to. Times are in seconds of the clock that was played by.
type Result struct {
	Policy string `json:"policy"`
	// Jobs of the trace: those that have ended, those that ran at the end, and those that still waited.
	Jobs    int `json:"jobs"`
	Ended   int `json:"ended"`
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// Wait is from a job's queueing to its first step, of those that have begun.
	Wait Wait `json:"waitSeconds"`
	// Late counts the jobs that waited longer than the SLO, those that wait still included.
	Late int `json:"overSLO"`
	// PodsStarted since the first job; those that were warm by then are not among them.
	PodsStarted int `json:"podsStarted"`
	// RunnerMinutes are the pods' lives since the first job, BusyMinutes what of them was spent registered for a job.
	RunnerMinutes float64 `json:"runnerMinutes"`
	BusyMinutes   float64 `json:"busyMinutes"`
	// Utilization is BusyMinutes of RunnerMinutes, from 0 to 1.
	Utilization float64 `json:"utilization"`
	// Cost is RunnerMinutes by the price of an hour.
	Cost float64 `json:"cost"`
	// Lasted is from the first job to the end.
	Lasted float64 `json:"lastedSeconds"`
}

// Wait says how long jobs waited, in seconds.
type Wait struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

func (s *simulation) result() Result {
	r := Result{Policy: s.policy.Name, Jobs: len(s.jobs), Lasted: s.now.Sub(s.first).Seconds()}
	var waits []float64
	for _, j := range s.jobs {
		begun := j.started && !j.startedAt.After(s.now)
		waited := s.now.Sub(j.QueuedAt)
		switch {
		case begun && j.done:
			r.Ended++
		case begun:
			r.Running++
		default:
			r.Waiting++
		}
		if begun {
			waited = j.startedAt.Sub(j.QueuedAt)
			waits = append(waits, waited.Seconds())
		}
		if waited > s.o.SLO {
			r.Late++
		}
	}
	r.Wait = waitOf(waits)
	var total poolTally
	for _, p := range s.pools {
		t := p.tally
		for _, member := range p.pods {
			t.add(member, s)
		}
		total.started += t.started
		total.alive += t.alive
		total.use += t.use
	}
	r.PodsStarted, r.RunnerMinutes, r.BusyMinutes = total.started, round(total.alive.Minutes()), round(total.use.Minutes())
	if total.alive > 0 {
		r.Utilization = round(float64(total.use) / float64(total.alive))
	}
	r.Cost = round(total.alive.Hours() * s.o.Price)
	return r
}

func waitOf(waits []float64) Wait {
	if len(waits) == 0 {
		return Wait{}
	}
	slices.Sort(waits)
	sum := 0.0
	for _, w := range waits {
		sum += w
	}
	at := func(share float64) float64 { return round(stats.Quantile(waits, share)) }
	return Wait{Mean: round(sum / float64(len(waits))), P50: at(0.50), P90: at(0.90), P99: at(0.99), Max: at(1)}
}

// round keeps a useful precision, which does not depend on the order of additions.
func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// Seconds prints a wait.
func Seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
