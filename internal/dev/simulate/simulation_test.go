package simulate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// free is a policy of one pool without limits.
func free(t require.TestingT, change func(*v1alpha1.RunnerPoolSpec)) Policy {
	p := Policy{Name: "p", Accounts: map[string]string{"*": unlimited}, Pools: []PoolPolicy{onePool("linux", "linux-4", change)}}
	require.NoError(t, p.complete())
	return p
}

func onePool(name, label string, change func(*v1alpha1.RunnerPoolSpec)) PoolPolicy {
	p := PoolPolicy{Name: name, Spec: v1alpha1.RunnerPoolSpec{
		Labels: []string{label}, Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("4"), Memory: resource.MustParse("16Gi")},
	}}
	change(&p.Spec)
	return p
}

func replicas(n int) func(*v1alpha1.RunnerPoolSpec) {
	return func(s *v1alpha1.RunnerPoolSpec) { s.Replicas = ptr.To(int32(n)) } //nolint:gosec // small
}

func autoscaling(warm, most int) func(*v1alpha1.RunnerPoolSpec) {
	return func(s *v1alpha1.RunnerPoolSpec) {
		s.Autoscaling = &v1alpha1.Autoscaling{Enabled: true, MinIdle: ptr.To(int32(warm)), MaxReplicas: ptr.To(int32(most)), //nolint:gosec // small
			ScaleDownCooldown: &metav1.Duration{Duration: time.Minute}, Stabilization: &metav1.Duration{Duration: time.Minute}}
	}
}

// erlangC is the mean wait in an M/M/c queue, in mean durations: the chance to wait, by what is left of the servers.
func erlangC(c int, load float64) float64 {
	b := 1.0
	for n := 1; n <= c; n++ { // Erlang B, by its recursion
		b = load * b / (float64(n) + load*b)
	}
	chance := b / (1 - load/float64(c)*(1-b))
	return chance / (float64(c) - load)
}

// With runners that start and register in no time, a pool that keeps c runners is an M/M/c queue: the mean wait is Erlang's.
func TestRun_MeanWaitIsErlangs(t *testing.T) {
	const jobs, mean = 20_000, time.Minute // in virtual time: the number of jobs, not the machine, decides how close it comes
	for _, c := range []struct {
		servers int
		load    float64
	}{{1, 0.5}, {4, 2.8}} {
		r := rand.New(rand.NewPCG(7, uint64(c.servers))) //nolint:gosec // it must be reproducible
		var trace Trace
		at := time.Duration(0)
		for range jobs {
			at += seconds(r.ExpFloat64() * mean.Seconds() / c.load)
			trace = append(trace, made(0, "acme", "acme/app", Exponential(mean).Draw(r)))
			trace[len(trace)-1].QueuedAt = monday.Add(at)
		}
		got, err := Run(trace, free(t, replicas(c.servers)), Options{Seed: 1, WarmUp: time.Minute, Drain: 24 * time.Hour})
		require.NoError(t, err)
		want := erlangC(c.servers, c.load) * mean.Seconds()
		require.InEpsilon(t, want, got.Wait.Mean, 0.05, "%d servers, load %g", c.servers, c.load)
		require.InDelta(t, c.load/float64(c.servers), got.Utilization, 0.01)
		require.Equal(t, jobs, got.Ended)
	}
}

// The same input gives the same bytes, another seed others.
func TestRun_SameSeedSameBytes(t *testing.T) {
	trace, err := MakeTrace("tenants", 3)
	require.NoError(t, err)
	trace = trace[:200]
	policy := free(t, autoscaling(3, 40))
	run := func(seed uint64) string {
		text := ""
		o := Options{Seed: seed, Boot: LogNormal(20*time.Second, 0.5), Mint: Exponential(time.Second), WarmUp: time.Minute, Drain: time.Hour,
			SampleEvery: time.Minute, Sample: func(s Sample) { text += fmt.Sprintln(s) }}
		result, err := Run(trace, policy, o)
		require.NoError(t, err)
		encoded, err := json.Marshal(result)
		require.NoError(t, err)
		return text + string(encoded)
	}
	require.Equal(t, run(1), run(1))
	require.NotEqual(t, run(1), run(2))
}

// drawn is a history with several accounts, pools, limits and caps.
type drawn struct {
	trace  Trace
	policy Policy
	o      Options
}

func draw(t *rapid.T) drawn {
	d := drawn{o: Options{
		Seed: rapid.Uint64().Draw(t, "seed"), Boot: Exponential(20 * time.Second), Mint: Fixed(time.Second), Connect: Fixed(time.Second),
		WarmUp: time.Minute, Drain: 2 * time.Hour, MintsPerMinute: rapid.SampledFrom([]int{0, 3, 20}).Draw(t, "mints"),
	}}
	d.policy = Policy{Name: "p", Accounts: map[string]string{
		"a": fmt.Sprintf("jobs=%d,cpu=1000,memory=4Ti", rapid.IntRange(0, 5).Draw(t, "limit")), "b": unlimited,
		"*": fmt.Sprintf("jobs=20,cpu=%d,memory=4Ti,jobs-per-repository=%d", rapid.IntRange(4, 20).Draw(t, "cpu"), rapid.IntRange(0, 2).Draw(t, "cap")),
	}}
	for _, name := range []string{"linux-4", "linux-8"} {
		change := replicas(rapid.IntRange(0, 6).Draw(t, "replicas"))
		if rapid.Bool().Draw(t, "autoscaled") {
			change = autoscaling(rapid.IntRange(0, 3).Draw(t, "warm"), rapid.IntRange(3, 12).Draw(t, "most"))
		}
		pool := onePool(name, name, change)
		if rapid.Bool().Draw(t, "fair") {
			pool.Spec.Queueing = v1alpha1.QueueingFairShare
		}
		d.policy.Pools = append(d.policy.Pools, pool)
	}
	require.NoError(t, d.policy.complete())
	at := time.Duration(0)
	for range rapid.IntRange(1, 120).Draw(t, "jobs") {
		at += time.Duration(rapid.IntRange(0, 20).Draw(t, "gap")) * time.Second
		account := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "account")
		j := made(at, account, account+rapid.SampledFrom([]string{"/one", "/two"}).Draw(t, "repository"),
			time.Duration(rapid.IntRange(0, 200).Draw(t, "duration"))*time.Second)
		j.Labels = []string{rapid.SampledFrom([]string{"linux-4", "linux-8", "nobody"}).Draw(t, "label")}
		d.trace = append(d.trace, j)
	}
	return d
}

// Nothing is lost and nothing done twice in any trace: every job ends, runs or waits; a pod runs at most one, and only
// while it exists; no account or repository exceeds its limits (CLAIM-5), no pool its ceiling (SCALE-3), and no minute has
// more registrations than GitHub allows (CLAIM-14). A job waits at the end only if it had no pool, or its limits are why.
func TestRun_CLAIM5_SCALE3_ConservesJobsAndKeepsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		s, err := newSimulation(d.trace, d.policy, d.o)
		require.NoError(t, err)
		pods, most := map[string]*pod{}, 0
		check := func() {
			claimed := 0
			for _, p := range s.pools {
				live := 0
				for name, member := range p.pods {
					require.True(t, pods[name] == nil || pods[name] == member, "a name is used once")
					pods[name] = member
					require.LessOrEqual(t, member.jobs, 1, "a pod runs one job")
					if member.claimed {
						live++
					}
				}
				require.Equal(t, p.busy, live, "no job runs without a pod")
				claimed += live
				ceiling := 12
				if p.object.Spec.Autoscaling == nil {
					ceiling = int(*p.object.Spec.Replicas)
				}
				require.LessOrEqual(t, len(p.pods), ceiling, "SCALE-3")
			}
			running := 0
			for _, j := range s.jobs {
				if j.started && !j.done {
					running++
				}
			}
			require.Equal(t, claimed, running)
			live, shares := map[int64]int64{}, map[dispatch.Repository]int64{} // counted from the jobs, not from the ledger's own sums
			for _, j := range s.jobs {
				if j.started && !j.done {
					live[j.queued.AccountID]++
					shares[j.queued.Repo()]++
				}
			}
			for id, n := range live {
				limits := s.ledger.accounts[id].limits[fleet.Linux]
				require.True(t, n <= limits.Jobs && 4000*n <= limits.MilliCPU, "CLAIM-5")
			}
			for r, n := range shares {
				most := s.ledger.accounts[r.AccountID].limits[fleet.Linux].JobsPerRepository
				require.True(t, most == 0 || n <= most, "CLAIM-5")
			}
			most = max(most, s.github.used)
		}
		for i := range 400 {
			s.at(s.first.Add(time.Duration(i)*7*time.Second), check)
		}
		s.play()
		check()
		require.True(t, d.o.MintsPerMinute == 0 || most <= d.o.MintsPerMinute, "CLAIM-14: %d", most)
		r := s.result()
		require.Equal(t, len(d.trace), r.Ended+r.Running+r.Waiting)
		require.Equal(t, s.ledger.waiting()+s.ended+s.busyJobs(), s.arrived(), "every job that came is somewhere, once")
		require.LessOrEqual(t, r.BusyMinutes, r.RunnerMinutes+1e-3)
		for _, j := range s.jobs {
			if j.started {
				require.False(t, j.startedAt.Before(j.QueuedAt))
				require.NotEqual(t, "nobody", j.Labels[0])
			}
		}
	})
}

func (s *simulation) busyJobs() (n int) {
	for _, p := range s.pools {
		n += p.busy
	}
	return n
}

func (s *simulation) arrived() (n int) {
	for _, j := range s.jobs {
		if !j.QueuedAt.After(s.now) {
			n++
		}
	}
	return n
}

// One more runner that is kept makes no job of the trace wait longer, where accounts have no limits and jobs are taken in
// their order.
func TestRun_MoreRunnersMakeNoJobWaitLonger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var trace Trace
		at := time.Duration(0)
		for range rapid.IntRange(1, 80).Draw(t, "jobs") {
			at += time.Duration(rapid.IntRange(0, 30).Draw(t, "gap")) * time.Second
			trace = append(trace, made(at, "acme", "acme/app", time.Duration(rapid.IntRange(0, 200).Draw(t, "duration"))*time.Second))
		}
		o := Options{Boot: Fixed(17 * time.Second), Mint: Fixed(time.Second), WarmUp: time.Minute, Drain: 100 * time.Hour}
		n := rapid.IntRange(1, 10).Draw(t, "runners")
		var before []*job
		for _, kept := range []int{n, n + 1} {
			s, err := newSimulation(trace, free(t, replicas(kept)), o)
			require.NoError(t, err)
			s.play()
			for i, j := range before {
				require.False(t, s.jobs[i].startedAt.After(j.startedAt), "job %d waits longer with %d runners than with %d", i+1, kept, kept-1)
			}
			before = s.jobs
		}
	})
}

// Two jobs and one runner, by hand: what each number of a result is.
func TestRun_ByHand(t *testing.T) {
	trace := Trace{made(0, "acme", "acme/app", time.Minute), made(time.Second, "acme", "acme/app", time.Minute)}
	o := Options{Boot: Fixed(10 * time.Second), Mint: Fixed(time.Second), Connect: Fixed(time.Second), WarmUp: time.Minute, Drain: time.Hour,
		SLO: 30 * time.Second, Price: 60}
	got, err := Run(trace, free(t, replicas(1)), o)
	require.NoError(t, err)
	// The first begins at 2 s and ends at 62; another pod is there at 72, and its job begins at 74 and ends at 134, when a third pod is begun.
	require.Equal(t, Result{
		Policy: "p", Jobs: 2, Ended: 2, Wait: Wait{Mean: 37.5, P50: 2, P90: 73, P99: 73, Max: 73}, Late: 1, PodsStarted: 2,
		RunnerMinutes: round(134.0 / 60), BusyMinutes: round(122.0 / 60), Utilization: round(122.0 / 134), Cost: round(134.0 / 60), Lasted: 134,
	}, got)

	o.For = 30 * time.Second
	got, err = Run(trace, free(t, replicas(1)), o)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 1, 0}, []int{got.Ended, got.Running, got.Waiting, got.Late})
	require.InDelta(t, 30, got.Lasted, 0)
}

// A pool that autoscales grows with its jobs and shrinks after them, by the planner's own rules.
func TestRun_Autoscales(t *testing.T) {
	var trace Trace
	for range 30 {
		trace = append(trace, made(0, "acme", "acme/app", 10*time.Minute))
	}
	trace = append(trace, made(4*time.Hour, "acme", "acme/app", time.Second))
	highest, lowest := 0, math.MaxInt
	_, err := Run(trace, free(t, autoscaling(1, 20)), Options{
		Boot: Fixed(5 * time.Second), WarmUp: time.Minute, Drain: time.Hour, SampleEvery: time.Minute,
		Sample: func(s Sample) {
			highest = max(highest, s.Wanted)
			if s.After > 3*time.Hour {
				lowest = min(lowest, s.Wanted)
			}
		},
	})
	require.NoError(t, err)
	require.Equal(t, 20, highest, "SCALE-3")
	require.Equal(t, 1, lowest)
}
