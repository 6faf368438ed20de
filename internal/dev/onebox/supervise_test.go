package onebox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	patience = 20 * time.Second
	interval = 10 * time.Millisecond
)

// events collects what is reported.
type events struct {
	mu   sync.Mutex
	list []Event
}

func (e *events) report(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, event)
}

func (e *events) kinds() []EventKind {
	e.mu.Lock()
	defer e.mu.Unlock()
	kinds := make([]EventKind, len(e.list))
	for i, event := range e.list {
		kinds[i] = event.Kind
	}
	return kinds
}

// superviseScript runs a shell script as a part, and stops it with the test.
func superviseScript(t *testing.T, script string) (*supervised, *events, *record) {
	t.Helper()
	layout := testLayout(t)
	require.NoError(t, layout.prepare(false, false))
	seen, rec := &events{}, &record{path: layout.recordFile()}
	part, err := supervise(context.Background(), Command{
		Name: "part", Path: "/bin/sh", Args: []string{"-c", script}, LogPath: layout.Log("part"), Grace: 5 * time.Second,
	}, rec, seen.report, time.Now)
	require.NoError(t, err)
	t.Cleanup(part.stop)
	return part, seen, rec
}

// isReady marks the part as ready.
func isReady(t *testing.T, part *supervised) {
	t.Helper()
	require.NoError(t, part.awaitReady(t.Context(), func(context.Context, time.Time) error { return nil }))
}

func TestSuperviseDoesNotRepeatAStartThatFailed(t *testing.T) {
	part, seen, rec := superviseScript(t, "exit 1")
	await.Receive(t, part.ended, "the part gives up")
	require.Empty(t, seen.kinds())
	require.Empty(t, rec.alive())
}

func TestSuperviseStartsAgainWhatEndsByItself(t *testing.T) {
	part, seen, rec := superviseScript(t, "exec sleep 1000")
	isReady(t, part)
	first, _, changed := part.state()
	require.Equal(t, first.PID(), rec.alive()[0].PID)
	first.Signal(syscall.SIGKILL)
	await.Receive(t, changed, "the part is started again")
	second, _, _ := part.state()
	require.NotEqual(t, first.PID(), second.PID())
	require.Eventually(t, func() bool { return len(seen.kinds()) == 2 }, patience, interval)
	require.Equal(t, []EventKind{EventEnded, EventStarted}, seen.kinds())
	require.Regexp(t, `^part \(pid \d+\) died \(killed\); restarting in 250ms$`, seen.list[0].Message)
	require.Regexp(t, `^part restarted \(pid \d+\)$`, seen.list[1].Message)
	part.stop()
	require.Empty(t, rec.alive())
	part.stop() // once more is fine
}

func TestSuperviseReplacesWithoutAPause(t *testing.T) {
	part, seen, _ := superviseScript(t, "exec sleep 1000")
	isReady(t, part)
	for range 5 { // each would double a back-off
		first, _, _ := part.state()
		oldPID, newPID, err := part.replace(t.Context(), syscall.SIGTERM)
		require.NoError(t, err)
		require.Equal(t, first.PID(), oldPID)
		second, _, _ := part.state()
		require.Equal(t, second.PID(), newPID)
		require.NotEqual(t, oldPID, newPID)
	}
	require.Empty(t, seen.kinds(), "what was asked for is not an accident")
}

func TestSuperviseStopsByForceWhatDoesNotListen(t *testing.T) {
	layout := testLayout(t)
	require.NoError(t, layout.prepare(false, false))
	ready := layout.path("ready")
	rec := &record{path: layout.recordFile()}
	part, err := supervise(context.Background(), Command{
		Name: "deaf", Path: "/bin/sh", Args: []string{"-c", "trap '' TERM; touch " + ready + "; while :; do sleep 0.05; done"},
		LogPath: layout.Log("deaf"), Grace: 100 * time.Millisecond,
	}, rec, func(Event) {}, time.Now)
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, err := os.Stat(ready); return err == nil }, patience, interval)
	part.stop()
	require.Empty(t, rec.alive())
}

func TestReplaceDuringAStopEnds(t *testing.T) {
	part, _, _ := superviseScript(t, "exec sleep 1000")
	part.stop()
	_, _, err := part.replace(t.Context(), syscall.SIGTERM)
	require.ErrorIs(t, err, errStopping)
}

func TestAwaitReadyTellsTheLastWordsOfAProcessThatGaveUp(t *testing.T) {
	part, _, _ := superviseScript(t, "echo starting; echo 'bullpen: the port is taken: choose another' >&2; exit 3")
	err := part.awaitReady(t.Context(), func(context.Context, time.Time) error { return errors.New("no answer") })
	require.ErrorContains(t, err, "the port is taken: choose another")
	require.ErrorContains(t, err, "exit status 3")
	require.NotContains(t, err.Error(), "bullpen: ")
}

func TestAwaitReadyTellsWhyInTheEnd(t *testing.T) {
	part, _, _ := superviseScript(t, "exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	err := part.awaitReady(ctx, func(context.Context, time.Time) error {
		if asked++; asked == 3 {
			cancel()
		}
		return errors.New("its database is away")
	})
	require.ErrorContains(t, err, "its database is away")
}

func TestLastWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("noise\n", 5000)+"the end\n\n"), 0o600))
	require.Equal(t, "the end", lastWords(path))
	require.NoError(t, os.WriteFile(path, []byte("bullpen: an earlier failure\nINFO starting\nbullpen: cannot reach Postgres:\n\thost a: refused\n\thost b: refused\n"), 0o600))
	require.Equal(t, "cannot reach Postgres: host a: refused host b: refused", lastWords(path))
	require.NoError(t, os.WriteFile(path, []byte("bullpen: no"), 0o600))
	require.Equal(t, "no", lastWords(path))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.Equal(t, "empty log", lastWords(path))
	require.Equal(t, "no log", lastWords(path+"x"))
}

func TestBackoffGrowsAndIsForgotten(t *testing.T) {
	pause, total := time.Duration(0), 0
	for range 20 {
		next := nextBackoff(pause, time.Second)
		require.GreaterOrEqual(t, next, pause)
		require.LessOrEqual(t, next, maxBackoff)
		pause = next
		total++
	}
	require.Equal(t, maxBackoff, pause)
	require.Equal(t, firstBackoff, nextBackoff(pause, stableAfter))
}
