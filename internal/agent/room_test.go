package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A runner on a full disk asks for no work, says so once, and asks again when there is room.
func TestPoll_OnAFullDiskAsksForNothing(t *testing.T) {
	d := newDispatcher(t, reply(http.StatusNoContent, ""), reply(http.StatusOK, jitReply))
	p := newPod(t, d)
	const gib = 1 << 30
	spaces := []Space{
		{Free: 100 * gib, Total: 200 * gib}, // the first poll
		{Free: gib / 8, Total: 200 * gib}, {Free: 0, Total: 200 * gib}, {Free: gib / 8, Total: 200 * gib},
		{Free: gib, Total: 200 * gib}, // the second
	}
	looked, asked := 0, []int{}
	p.options.Space = func(string) (Space, error) {
		asked = append(asked, d.pollCount())
		looked++
		return spaces[looked-1], nil
	}
	require.NoError(t, Poll(t.Context(), p.options))
	require.Equal(t, []int{0, 1, 1, 1, 1}, asked, "nothing is asked while the disk is full")
	require.Equal(t, 2, d.pollCount())
	require.Equal(t, 1, strings.Count(p.log.String(), "not polling for jobs"))
	require.Equal(t, 1, strings.Count(p.log.String(), "disk space is available again"))
	require.Contains(t, p.log.String(), "128 MiB of 204800 MiB are free")
	require.Equal(t, []time.Duration{lookForRoom, lookForRoom, lookForRoom}, p.waits[len(p.waits)-3:])
}

func TestPoll_OnAFullDiskStopsOnRequest(t *testing.T) {
	d := newDispatcher(t, reply(http.StatusOK, jitReply))
	p := newPod(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	p.options.Space = func(string) (Space, error) { cancel(); return Space{Total: 1 << 40}, nil }
	require.Equal(t, 143, code(t, Poll(ctx, p.options)))
	require.Zero(t, d.pollCount())

	p.options.Space = func(string) (Space, error) { return Space{Total: 1 << 40}, errors.New("no such call") }
	require.NoError(t, Poll(t.Context(), p.options), "what cannot be measured is not in the way")
}

// A supervisor that exits while the disk is full withdraws its invitation: work for it would be a job that never runs.
func TestPoll_OnAFullDiskForgetsASupervisorThatHasEnded(t *testing.T) {
	d := newDispatcher(t, reply(http.StatusOK, jitReply))
	p := newPod(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.options.Log = slog.New(slog.NewTextHandler(endWhen{"waiting for the runner's container", cancel}, nil))
	full := true
	p.options.Space = func(string) (Space, error) {
		if full {
			full = false
			return Space{Total: 1 << 40}, nil
		}
		require.NoError(t, os.Remove(filesIn(p.options.JITFile, "").idle))
		return Space{Free: 1 << 39, Total: 1 << 40}, nil
	}
	require.Equal(t, 143, code(t, Poll(ctx, p.options)))
	require.Zero(t, d.pollCount())
}

// endWhen calls end when the log has the text.
type endWhen struct {
	text string
	end  func()
}

func (e endWhen) Write(line []byte) (int, error) {
	if strings.Contains(string(line), e.text) {
		e.end()
	}
	return len(line), nil
}

func TestSpace_Shortage(t *testing.T) {
	const mib = 1 << 20
	for want, s := range map[string]Space{
		"255 MiB of 10240 MiB are free": {Free: 255 * mib, Total: 10240 * mib},
		"4 MiB of 100 MiB are free":     {Free: 4 * mib, Total: 100 * mib},
		"99 of 1000000 files are free":  {Free: 512 * mib, Total: 10240 * mib, FreeFiles: 99, TotalFiles: 1000000},
	} {
		require.Equal(t, want, s.shortage())
	}
	for _, s := range []Space{
		{}, {Free: 256 * mib, Total: 10240 * mib}, {Free: 5 * mib, Total: 100 * mib},
		{Free: 512 * mib, Total: 10240 * mib, FreeFiles: 100, TotalFiles: 1000000}, {Free: 512 * mib, Total: 10240 * mib, FreeFiles: 12, TotalFiles: 12},
	} {
		require.Empty(t, s.shortage(), "%+v", s)
	}
	here, err := spaceOf(t.TempDir())
	require.NoError(t, err)
	require.Positive(t, here.Total)
	require.LessOrEqual(t, here.Free, here.Total)
}
