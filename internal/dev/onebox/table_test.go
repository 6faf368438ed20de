package onebox

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

func testBoard(t testing.TB) board {
	running := ranJob(t, 2, "build/1", 0, 3, 0)
	running.Status, running.Conclusion, running.CompletedAt = "in_progress", "", nil
	return board{
		Elapsed: 83 * time.Second, Now: *at(5), WantJobs: 6, Expected: demoExpected,
		Jobs: []standin.JobView{
			ranJob(t, 1, "prepare", 0, 1, 2), running, {ID: 3, Key: "build/2", Name: "build (2)", Status: "queued"},
			ranJob(t, 4, "expected-failure", 0, 1, 2), {ID: 5, Key: "after-failure", Status: "completed", Conclusion: "skipped"},
		},
		Pods:     []podRow{{Name: "p-1", UID: podUID(1), Stage: stageIdle}, {Name: "p-2", UID: podUID(2), Stage: stageBusy}, {Name: "p-3", UID: podUID(3), Stage: stageStarting, Mac: true}},
		Restarts: []Restart{{Replacement: Replacement{Part: partServer, Signal: "kill -9", OldPID: 1, NewPID: 2}, Running: 3}},
		Notes:    []string{"", "restarting the controller (SIGTERM) …"},
	}
}

func TestRender(t *testing.T) {
	require.Equal(t, `01:23  6 jobs: 3 done, 1 running, 1 queued

prepare            ✓
build              ●·
expected-failure   ✗
after-failure      –

runners: 1 idle, 1 busy, 1 starting
  p-2                Linux busy        build/1                2s
  p-1                Linux idle        
  p-3                macOS starting    

restarted server: kill -9, pid 1 → 2, with 3 jobs running
restarting the controller (SIGTERM) …`, strings.Join(render(testBoard(t), 100, 40, false), "\n"))
}

func TestRenderColours(t *testing.T) {
	b := testBoard(t)
	expectedFailure := mark(b.Jobs[3], "failure", true)
	require.Equal(t, green+"✗"+reset, expectedFailure, "a failure that is expected is good")
	require.Equal(t, red+"✗"+reset, mark(b.Jobs[3], "success", true))
	require.NotContains(t, strings.Join(render(b, 100, 40, false), ""), "\x1b")
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestRenderFitsTheTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := board{WantJobs: 500, Expected: demoExpected}
		for n := range rapid.IntRange(0, 500).Draw(t, "jobs") {
			b.Jobs = append(b.Jobs, standin.JobView{ID: int64(n), Key: fmt.Sprintf("build/%d", n), Status: "queued", Conclusion: rapid.SampledFrom([]string{"", "success", "failure"}).Draw(t, "conclusion")})
		}
		for n := range rapid.IntRange(0, 40).Draw(t, "pods") {
			b.Pods = append(b.Pods, podRow{Name: fmt.Sprintf("default-%08d", n), Stage: rapid.SampledFrom([]stage{stageIdle, stageBusy, stageStarting}).Draw(t, "stage")})
		}
		width, height := rapid.IntRange(40, 200).Draw(t, "width"), rapid.IntRange(5, 80).Draw(t, "height")
		lines := render(b, width, height, true)
		for _, line := range lines {
			require.LessOrEqual(t, utf8.RuneCountInString(escapes.ReplaceAllString(line, "")), width)
			require.NotContains(t, line, "\n")
		}
		require.LessOrEqual(t, len(lines), height)
	})
}

func TestScreenRedrawsInPlace(t *testing.T) {
	var out bytes.Buffer
	s := screen{out: &out}
	s.draw([]string{"a", "b"})
	out.Reset()
	s.draw([]string{"c"})
	require.Equal(t, "\x1b[2A\r\x1b[Jc\n", out.String())
	out.Reset()
	s.clear()
	require.Equal(t, "\x1b[1A\r\x1b[J", out.String())
	out.Reset()
	s.draw([]string{"d"})
	require.Equal(t, "\r\x1b[Jd\n", out.String())
}

func TestTableMakesRoomForEvents(t *testing.T) {
	var out bytes.Buffer
	v := newViewer(DemoOptions{Terminal: true, Out: &out, Size: func() (int, int) { return 80, 24 }, Jobs: 5})
	v.show(testBoard(t))
	lines := strings.Count(out.String(), "\n")
	out.Reset()
	v.above(func() { fmt.Fprintln(&out, "! the server ended") })
	require.Equal(t, fmt.Sprintf("\x1b[%dA\r\x1b[J! the server ended\n", lines), out.String())
}

func TestLinesTellEachChangeOnce(t *testing.T) {
	var out bytes.Buffer
	v := newViewer(DemoOptions{Out: &out, Jobs: 6})
	b := testBoard(t)
	v.show(b)
	require.Contains(t, out.String(), "01:23  job build/1                  running on p-2 after 3s in the queue\n")
	require.Contains(t, out.String(), "restarted the server (kill -9): pid 1 → 2")
	out.Reset()
	v.show(b)
	require.Empty(t, out.String())
	b.Jobs[2].Status, b.Jobs[2].Conclusion = "completed", "cancelled"
	v.show(b)
	require.Equal(t, "01:23  job build (2)                cancelled\n", out.String())
}

func TestLinesSumUpManyJobs(t *testing.T) {
	var out bytes.Buffer
	v := newViewer(DemoOptions{Out: &out, Jobs: fewJobs + 1})
	b := testBoard(t)
	b.WantJobs = fewJobs + 1
	v.show(b)
	require.Contains(t, out.String(), "3 of 61 jobs done, 1 running, 1 queued; runners: 1 idle, 1 busy, 1 starting")
	require.NotContains(t, out.String(), "job build")
}

func TestPrinterWritesJSON(t *testing.T) {
	var out bytes.Buffer
	NewPrinter(&out, true).Report(Event{Time: epoch, Kind: EventStarted, Part: "server", PID: 7, Message: "server runs"})
	require.JSONEq(t, `{"time":"2026-01-01T00:00:00Z","event":"started","part":"server","pid":7,"message":"server runs"}`, out.String())
}

func TestLoadWorkflowsRefusesBeforeAnythingStarts(t *testing.T) {
	_, err := LoadWorkflows([]string{"/no/such/file.yaml"})
	require.ErrorContains(t, err, "--workflow: reading the workflow file")
	files, err := LoadWorkflows([]string{"../../../examples/demo.yaml"})
	require.NoError(t, err)
	require.Equal(t, "demo.yaml", files[0].Name)
	bad := t.TempDir() + "/bad.yaml"
	require.NoError(t, writePrivate(bad, []byte("on: push\njobs:\n  a:\n    runs-on: x\n    steps:\n      - uses: actions/checkout@v4\n")))
	_, err = LoadWorkflows([]string{bad})
	require.ErrorContains(t, err, "bad.yaml:6")
	require.ErrorContains(t, err, "uses")
}
