package growth_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/test/scale/growth"
)

// steady is a run in which nothing grows: caches fill at first, and every sample is off by as much as noise says.
func steady(pods, samples int, noise func(i int) float64) growth.Run {
	r := growth.Run{Pods: pods, Nodes: 5, Queued: 100, Accounts: 10}
	for i := range samples {
		jobs := i * pods / 4
		fill := 1 - 0.5/float64(i+1)
		r.Samples = append(r.Samples, growth.Sample{
			Jobs: jobs, Seconds: float64(jobs) / 10, Queued: 100, Executing: pods, DatabaseBytes: int64(1100 * jobs),
			Parts: map[string]growth.Part{
				"server":     {HeapBytes: 60e6 * fill * (1 + noise(i)), ResidentBytes: 200e6, Goroutines: 3000 * (1 + noise(i+1)), CPUSeconds: 0.004 * float64(jobs)},
				"controller": {HeapBytes: 50e6 * fill * (1 + noise(i+2)), ResidentBytes: 150e6, Goroutines: 200, CPUSeconds: 0.002 * float64(jobs)},
			},
		})
	}
	return r
}

func change(r growth.Run, part string, of func(jobs int, p *growth.Part)) growth.Run {
	for i, s := range r.Samples {
		p := s.Parts[part]
		of(s.Jobs, &p)
		r.Samples[i].Parts[part] = p
	}
	return r
}

func TestGrowing_SaysNothingOfNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		off := rapid.SliceOfN(rapid.Float64Range(-0.02, 0.02), 50, 50).Draw(t, "noise")
		r := steady(1000, 40, func(i int) float64 { return off[i%len(off)] })
		require.Empty(t, r.Growing())
	})
}

func TestGrowing_FindsWhatGrows(t *testing.T) {
	quiet := func(int) float64 { return 0 }
	for name, grow := range map[string]func(jobs int, p *growth.Part){
		"heap of the controller":           func(jobs int, p *growth.Part) { p.HeapBytes += 1000 * float64(jobs) }, // a kilobyte a job
		"goroutines of the controller":     func(jobs int, p *growth.Part) { p.Goroutines += float64(jobs) / 50 },
		"processor time of the controller": func(jobs int, p *growth.Part) { p.CPUSeconds += float64(jobs) * float64(jobs) * 1e-7 },
	} {
		t.Run(name, func(t *testing.T) {
			found := change(steady(10_000, 40, quiet), "controller", grow).Growing()
			require.Len(t, found, 1)
			require.Contains(t, found[0], name)
		})
	}
}

// Jobs end in bursts, and the cost of waiting and running ones depends on time: a job that ended while few others did is
// not dearer.
func TestGrowing_TellsBurstsFromWhatGetsDearer(t *testing.T) {
	of := func(dearer, slower float64) []string {
		r := steady(10_000, 40, func(int) float64 { return 0 })
		seconds, cpu := 0.0, 0.0
		for i, s := range r.Samples {
			took := 8.0
			if i%3 == 0 || i > 30 {
				took = 40 // few end at once, and fewest at last
			}
			took *= 1 + slower*float64(i)
			seconds += took
			cpu += took * 0.1 * (1 + dearer*float64(i))
			p := s.Parts["server"]
			p.CPUSeconds = cpu
			r.Samples[i].Seconds, s.Parts["server"] = seconds, p
		}
		return r.Growing()
	}
	require.Empty(t, of(0, 0))
	require.Len(t, of(0.3, 0), 1)
	require.Contains(t, of(0.3, 0)[0], "processor time of the server")
	require.Contains(t, of(0, 0.2)[0], "end a second")
}

// The remains of a job count by how many jobs end in an hour: with runners that are busy for hours that is fewer.
func TestGrowing_CountsTheJobsOfAnHour(t *testing.T) {
	of := func(jobsASecond float64) growth.Run {
		r := change(steady(10_000, 40, func(int) float64 { return 0 }), "controller", func(jobs int, p *growth.Part) { p.HeapBytes += 350 * float64(jobs) })
		for i, s := range r.Samples {
			r.Samples[i].Seconds = float64(s.Jobs) / jobsASecond
		}
		return r
	}
	require.Len(t, of(20).Growing(), 1, "14 MB in an hour, of 40,000 jobs: more is not asked of a runner")
	require.Len(t, of(11).Growing(), 1, "14 MB in an hour")
	require.Empty(t, of(1).Growing(), "1 MB in an hour")
}

// A process that has died and come back has a small heap again.
func TestGrowing_FindsWhatWasRestarted(t *testing.T) {
	r := change(steady(1000, 40, func(int) float64 { return 0 }), "server", func(jobs int, p *growth.Part) {
		if jobs > 5000 {
			p.CPUSeconds -= 15
		}
	})
	require.Len(t, r.Growing(), 1)
	require.Contains(t, r.Growing()[0], "server was restarted")
}

func TestGrowing_AFewSamplesTellNothing(t *testing.T) {
	require.NotEmpty(t, steady(1000, 4, func(int) float64 { return 0 }).Growing())
	require.NotEmpty(t, growth.Run{}.Growing())
}

func TestTable_HasARowForEveryTenth(t *testing.T) {
	r := steady(1000, 41, func(int) float64 { return 0 })
	table := r.Table()
	require.Equal(t, 13, bytes.Count([]byte(table), []byte("\n")))
	require.Contains(t, table, "| 10000 | 16.7 | 100 | 1000 |")
	require.Contains(t, table, "| 2.00 |", "the controller's 2 ms")
	require.Contains(t, table, "| 4.00 |", "the server's 4 ms")
	require.Contains(t, table, "1.10 |\n", "what a job leaves in the database")
	require.Equal(t, "1000 pods on 5 nodes, 100 jobs queued, 10 accounts; 10000 jobs ended in 17 minutes, 10.0 a second.", r.Sentence())
	require.NotPanics(t, func() { _ = growth.Run{}.Table(); _ = growth.Run{}.Sentence() })
}

func TestSVG_IsWellFormed(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, steady(1000, 41, func(int) float64 { return 0 }).SVG(&out))
	decoder, polylines := xml.NewDecoder(&out), 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "polyline" {
			polylines++
		}
	}
	require.Equal(t, 8, polylines, "two parts in three panels, and what their lines look like")
}
