package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Shape is a kind of load that a trace can be made of.
type Shape struct {
	Name, Summary string
	make          func(*rand.Rand) Trace
}

// monday is when made traces begin: a Monday's midnight.
var monday = time.Date(2026, time.October, 5, 0, 0, 0, 0, time.UTC)

// Shapes lists those there are. docs/internals/simulate.md states their distributions.
func Shapes() []Shape {
	return []Shape{
		{"office-day", "one organization's working day: arrivals by the hour, lognormal durations", officeDay},
		{"monorepo", "quiet, but for pushes that start matrices of 256 jobs at once", monorepo},
		{"tenants", "200 small accounts, and three that bury the queue", tenants},
	}
}

// MakeTrace makes the trace of that name: the same for the same seed.
func MakeTrace(name string, seed uint64) (Trace, error) {
	var names []string
	for i, shape := range Shapes() {
		if shape.Name == name {
			trace := shape.make(rand.New(rand.NewPCG(seed, uint64(i)))) //nolint:gosec // it must be reproducible
			slices.SortStableFunc(trace, func(a, b Job) int { return a.QueuedAt.Compare(b.QueuedAt) })
			return trace, nil
		}
		names = append(names, shape.Name)
	}
	return nil, fmt.Errorf("there is no trace %q; choose one of %q", name, names)
}

// officeDay is a Poisson process whose rate is that of a working day: perHour jobs an hour at most, by a cosine between 07:00 and
// 19:00, and a twentieth of that at any time. Durations are lognormal: median 3 minutes, sigma 0.9. Twenty repositories, the
// n-th with a share of 1/n.
func officeDay(r *rand.Rand) Trace {
	const perHour = 240.0
	rate := func(at time.Duration) float64 {
		day := (at.Hours() - 13) / 6 // -1 at 07:00, 1 at 19:00
		bump := 0.0
		if math.Abs(day) < 1 {
			bump = (1 + math.Cos(math.Pi*day)) / 2
		}
		return perHour * (0.05 + 0.95*bump)
	}
	duration := LogNormal(3*time.Minute, 0.9)
	var trace Trace
	for at := time.Duration(0); ; {
		at += seconds(r.ExpFloat64() * 3600 / perHour) // thinning: those of the highest rate, some of which are none
		if at >= 24*time.Hour {
			return trace
		}
		if r.Float64()*perHour < rate(at) {
			trace = append(trace, made(at, "acme", fmt.Sprintf("acme/service-%d", harmonic(r, 20)), duration.Draw(r)))
		}
	}
}

// monorepo lasts 12 hours. It has a push every 40 minutes on average, each a matrix of 256 jobs within 10 s, of lognormal
// durations (median 4 minutes, sigma 0.5). Beside them are single jobs, one every 2 minutes on average (median 1 minute,
// sigma 0.7).
func monorepo(r *rand.Rand) Trace {
	var trace Trace
	matrix, single := LogNormal(4*time.Minute, 0.5), LogNormal(time.Minute, 0.7)
	for at := seconds(r.ExpFloat64() * 2400); at < 12*time.Hour; at += seconds(r.ExpFloat64() * 2400) {
		for range 256 {
			trace = append(trace, made(at+seconds(10*r.Float64()), "acme", "acme/mono", matrix.Draw(r)))
		}
	}
	for at := time.Duration(0); at < 12*time.Hour; at += seconds(r.ExpFloat64() * 120) {
		trace = append(trace, made(at, "acme", "acme/tools", single.Draw(r)))
	}
	return trace
}

// tenants lasts 8 hours. It has 200 accounts, each with a job every 2 hours on average, lognormal (median 2 minutes, sigma
// 0.8). Three more queue 300 jobs each within 5 minutes, at 01:00, 03:00 and 05:00, lognormal (median 5 minutes, sigma
// 0.5).
func tenants(r *rand.Rand) Trace {
	var trace Trace
	small, big := LogNormal(2*time.Minute, 0.8), LogNormal(5*time.Minute, 0.5)
	for n := range 200 {
		login := fmt.Sprintf("tenant-%03d", n+1)
		for at := seconds(r.ExpFloat64() * 7200); at < 8*time.Hour; at += seconds(r.ExpFloat64() * 7200) {
			trace = append(trace, made(at, login, login+"/app", small.Draw(r)))
		}
	}
	for n := range 3 {
		login := fmt.Sprintf("hog-%d", n+1)
		for range 300 {
			at := time.Duration(1+2*n)*time.Hour + seconds(300*r.Float64())
			trace = append(trace, made(at, login, login+"/app", big.Draw(r)))
		}
	}
	return trace
}

func made(at time.Duration, account, repository string, duration time.Duration) Job {
	return Job{
		QueuedAt: monday.Add(at.Truncate(time.Millisecond)), Account: account, Labels: []string{"linux-4"}, Repository: repository,
		Duration: duration.Truncate(time.Millisecond),
	}
}

// harmonic draws from 1 to n, each i with a share of 1/i.
func harmonic(r *rand.Rand, n int) int {
	sum := 0.0
	for i := range n {
		sum += 1 / float64(i+1)
	}
	left := r.Float64() * sum
	for i := range n {
		if left -= 1 / float64(i+1); left < 0 {
			return i + 1
		}
	}
	return n
}
