package load

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

var update = flag.Bool("update", false, "write the golden files")

// measured is a result with a bit of everything.
func measured() Result {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var jobs []adminapi.Job
	for i := range 200 {
		queued := began.Add(time.Duration(i/10) * time.Second)
		mint := 0.02 * float64(1+i%50)
		started := queued.Add(time.Duration((1.1 + mint + float64(i)/100) * float64(time.Second)))
		jobs = append(jobs, adminapi.Job{ID: int64(i), QueuedAt: queued, StartedAt: &started, Timeline: &adminapi.Timeline{Split: []adminapi.TimelinePhase{
			{Name: "webhook", Seconds: 0.1}, {Name: "dispatch", Seconds: float64(i) / 100}, {Name: "registration", Seconds: mint}, {Name: "start", Seconds: 1}, {Name: "run", Seconds: 99},
		}}})
	}
	return Result{
		Shape: Poisson, Seed: 7, PlannedJobs: 203, SubmittedJobs: 202, SubmittedRuns: 101, Ended: 200, SubmitSeconds: 20.25, LastedSeconds: 80,
		Conclusions: map[string]int{"success": 199, "failure": 1}, LateSeconds: 1.5, HeldBack: 3, Stages: Stages(jobs), Series: Series(jobs), Unended: 12,
		Stuck: []Stuck{{ID: 31, Repository: "acme/app", Name: "load <1>\x1b[2J", State: "queued", Code: "no-pool", Sentence: "Nobody serves it & that is that.", Remedy: "Make a pool."}},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestText_Golden(t *testing.T) {
	var ascii, drawn bytes.Buffer
	require.NoError(t, Text(&ascii, measured(), Style{Width: 80}))
	require.NoError(t, Text(&drawn, measured(), Style{Width: 80, Blocks: true}))
	golden(t, "result.ascii", ascii.Bytes())
	golden(t, "result.blocks", drawn.Bytes())
	for _, c := range ascii.Bytes() {
		require.True(t, c == '\n' || c >= ' ' && c < 0x7f, "%q is no plain ASCII", c)
	}
	require.NotContains(t, drawn.String(), "\x1b")
}

func TestSVG_Golden(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, SVG(&out, measured()))
	golden(t, "result.svg", out.Bytes())
}

func TestSVG_IsWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Result{Shape: Shape(rapid.String().Draw(t, "shape"))}
		for range rapid.IntRange(0, 7).Draw(t, "stages") {
			values := rapid.SliceOf(rapid.Float64Range(0, 100_000)).Draw(t, "values")
			r.Stages = append(r.Stages, Stage{Name: rapid.String().Draw(t, "name"), Summary: Summarize(values), Histogram: Histogram(values)})
		}
		after := 0.0
		for range rapid.IntRange(0, 5).Draw(t, "points") {
			after += rapid.Float64Range(0.5, 100).Draw(t, "after")
			r.Series = append(r.Series, Point{After: after, Summary: Summarize([]float64{rapid.Float64Range(0, 1e6).Draw(t, "wait")})})
		}
		var out bytes.Buffer
		require.NoError(t, SVG(&out, r))
		require.NotRegexp(t, `="[^"]*(NaN|Inf)`, out.String())
		for decoder := xml.NewDecoder(&out); ; {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
	})
}

func TestSeconds_KeepsThreeDigits(t *testing.T) {
	for s, want := range map[float64]string{0: "0ms", 0.0123: "12ms", 0.9996: "1.00s", 9.996: "10.0s", 99.96: "100s", 3600: "3600s"} {
		require.Equal(t, want, Seconds(s))
	}
}
