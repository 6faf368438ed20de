package load

import (
	"math"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSchedule_KeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mix := Mix{}
		for range rapid.IntRange(1, 4).Draw(t, "kinds") {
			mix.Runs = append(mix.Runs, Kind{Weight: rapid.IntRange(1, 9).Draw(t, "weight"), Jobs: rapid.IntRange(1, MaxMatrix).Draw(t, "jobs")})
		}
		plan := Plan{
			Shape: rapid.SampledFrom([]Shape{Even, Poisson, Burst}).Draw(t, "shape"), Rate: rapid.Float64Range(0.1, 500).Draw(t, "rate"),
			Runs: rapid.IntRange(1, 600).Draw(t, "runs"), Within: 10 * time.Second, Jobs: rapid.IntRange(1, 3000).Draw(t, "most"),
			For: time.Duration(rapid.IntRange(1, 60).Draw(t, "for")) * time.Second, Seed: rapid.Uint64().Draw(t, "seed"),
		}
		schedule, err := Schedule(plan, mix)
		require.NoError(t, err)
		again, err := Schedule(plan, mix)
		require.NoError(t, err)
		require.Equal(t, schedule, again)
		jobs, before := 0, time.Duration(0)
		for i, a := range schedule {
			require.GreaterOrEqual(t, a.At, before)
			require.LessOrEqual(t, a.At, plan.For)
			if i < len(schedule)-1 {
				require.Equal(t, mix.Runs[a.Kind].Jobs, a.Jobs)
			}
			require.Positive(t, a.Jobs)
			jobs, before = jobs+a.Jobs, a.At
		}
		require.LessOrEqual(t, jobs, plan.Jobs)
		if plan.Shape == Burst && plan.For >= plan.Within && jobs < plan.Jobs {
			require.Len(t, schedule, plan.Runs)
		}
	})
}

// A burst of 500 runs of 256 jobs in 10 s is what it says, and a mean rate is met: both within four standard deviations.
func TestSchedule_MeetsRateAndProportions(t *testing.T) {
	mix := Mix{Runs: []Kind{{Weight: 3, Jobs: 1}, {Weight: 1, Jobs: 5}}} // 2 jobs a run
	for seed := range uint64(20) {
		for _, shape := range []Shape{Even, Poisson} {
			schedule, err := Schedule(Plan{Shape: shape, Rate: 20, Jobs: MaxJobs, For: 400 * time.Second, Seed: seed}, mix)
			require.NoError(t, err)
			tolerance := 1.0
			if shape == Poisson {
				tolerance = 4 * math.Sqrt(4000)
			}
			require.InDelta(t, 4000, len(schedule), tolerance)
			large := 0
			for _, a := range schedule {
				large += a.Kind
			}
			n := float64(len(schedule))
			require.InDelta(t, n/4, large, 4*math.Sqrt(n*3/16))
		}
		burst, err := Schedule(Plan{Shape: Burst, Runs: 500, Within: 10 * time.Second, Jobs: MaxJobs, For: time.Minute, Seed: seed},
			Mix{Runs: []Kind{{Weight: 1, Jobs: MaxMatrix}}})
		require.NoError(t, err)
		require.Len(t, burst, 500)
		half := sort.Search(len(burst), func(i int) bool { return burst[i].At > 5*time.Second })
		require.InDelta(t, 250, half, 4*math.Sqrt(125))
	}
}

func TestSchedule_RefusesWhatHasNoBound(t *testing.T) {
	good := Plan{Shape: Even, Rate: 1, Jobs: 1, For: time.Second}
	for name, spoil := range map[string]func(*Plan){
		"shape": func(p *Plan) { p.Shape = "wave" }, "jobs": func(p *Plan) { p.Jobs = 0 }, "time": func(p *Plan) { p.For = 0 },
		"rate": func(p *Plan) { p.Rate = 0 }, "NaN": func(p *Plan) { p.Rate = math.NaN() }, "burst": func(p *Plan) { p.Shape = Burst },
	} {
		bad := good
		spoil(&bad)
		_, err := Schedule(bad, DefaultMix())
		require.Error(t, err, name)
	}
	_, err := Schedule(good, DefaultMix())
	require.NoError(t, err)
}

func TestStatistics_AgreeWithASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 100_000), 1, 300).Draw(t, "values")
		kept := slices.Clone(values)
		s := Summarize(values)
		require.Equal(t, kept, values)
		slices.Sort(kept)
		for q, got := range map[float64]float64{0.5: s.P50, 0.9: s.P90, 0.99: s.P99, 1: s.Max} {
			atMost := sort.Search(len(kept), func(i int) bool { return kept[i] > got })
			below := sort.SearchFloat64s(kept, got)
			require.GreaterOrEqual(t, float64(atMost), q*float64(len(kept)))
			require.Less(t, float64(below), q*float64(len(kept)))
		}
		count, low := 0, -1.0
		buckets := Histogram(values)
		for i, b := range buckets {
			want := 0
			for _, v := range kept {
				if v <= b.UpTo && (i == 0 || v > low) || v > b.UpTo && i == len(buckets)-1 {
					want++
				}
			}
			require.Equal(t, want, b.Count)
			count, low = count+b.Count, b.UpTo
		}
		require.Equal(t, len(values), count)
		require.Positive(t, buckets[0].Count)
		require.Positive(t, buckets[len(buckets)-1].Count)
	})
	require.Equal(t, Summary{}, Summarize(nil))
	require.Empty(t, Histogram(nil))
}

func TestParseMix_SaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"runs: []":                                            "1 to 1000",
		"runs: [{repository: a/b, label: x}]":                 `unknown field "label"`,
		"runs: [{repository: a, labels: [x]}]":                "owner/name",
		"runs: [{repository: a/b}]":                           "runs[0]: labels are missing",
		"runs: [{repository: a/b, labels: ['x]']}]":           `label "x]"`,
		"runs: [{repository: a/b, labels: [x], jobs: 257}]":   "from 1 to 256",
		"runs: [{repository: a/b, labels: [x], weight: -1}]":  "weight is -1",
		"runs: [{repository: a/b, labels: [x], seconds: -1}]": "seconds is -1",
	} {
		_, err := ParseMix([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
	mix, err := ParseMix([]byte("runs: [{repository: acme/app, labels: [bullpen]}]"))
	require.NoError(t, err)
	require.Equal(t, DefaultMix(), mix)
}

func FuzzParseMix(f *testing.F) {
	f.Add("runs: [{repository: acme/app, labels: [bullpen, '12'], weight: 3, jobs: 256, seconds: 5}]")
	f.Add("runs:\n- repository: a/b\n  labels: [x]\n")
	f.Fuzz(func(t *testing.T, text string) {
		mix, err := ParseMix([]byte(text))
		if err != nil {
			return
		}
		for _, kind := range mix.Runs { // what was taken can be scheduled and written
			require.NoError(t, kind.check())
			require.Equal(t, 1, strings.Count(kind.Workflow(1), "runs-on"))
		}
		_, err = Schedule(Plan{Shape: Poisson, Rate: 100, Jobs: 100, For: time.Second}, mix)
		require.NoError(t, err)
	})
}
