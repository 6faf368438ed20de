package http

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A fleet sends thousands of requests a minute: a failure of all of them is logged so often in a minute, and counted
// beyond.
const (
	mostLogged = 10
	logWindow  = time.Minute
)

// flood logs what fails for each request, and does not drown the log when that is every request. It may be used concurrently.
type flood struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	windows map[string]*window // by message
}

type window struct {
	since  time.Time
	logged int
	left   int // not logged
}

func newFlood(log *slog.Logger, now func() time.Time) *flood {
	return &flood{log: log, now: now, windows: map[string]*window{}}
}

// tell logs, or counts. The last line before it only counts says until when, and the first one after that how many there were, and since when.
func (f *flood) tell(ctx context.Context, level slog.Level, message string, args ...any) {
	more, ok := f.take(message)
	if ok {
		f.log.Log(ctx, level, message, append(args, more...)...)
	}
}

func (f *flood) take(message string) (more []any, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w, now := f.windows[message], f.now()
	if w == nil || now.Sub(w.since) >= logWindow {
		if w != nil && w.left > 0 {
			more = []any{"unlogged", w.left, "since", w.since}
		}
		f.windows[message] = &window{since: now, logged: 1}
		return more, true
	}
	if w.logged >= mostLogged {
		w.left++
		return nil, false
	}
	if w.logged++; w.logged == mostLogged {
		more = []any{"unloggedUntil", w.since.Add(logWindow)}
	}
	return more, true
}
