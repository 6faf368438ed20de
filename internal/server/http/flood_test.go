package http

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An error of every request of a fleet is logged a few times a minute, per message, and all are counted.
func TestFlood_TellsAFewAndCountsTheRest(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	f := newFlood(slog.New(slog.NewTextHandler(&out, nil)), func() time.Time { return now })
	for range 1000 {
		f.tell(t.Context(), slog.LevelWarn, "asking", "error", errors.New("it is overloaded"))
		f.tell(t.Context(), slog.LevelError, "dispatching")
	}
	require.Equal(t, mostLogged, strings.Count(out.String(), `level=WARN msg=asking error="it is overloaded"`))
	require.Equal(t, mostLogged, strings.Count(out.String(), "level=ERROR msg=dispatching"))
	require.NotContains(t, out.String(), "unlogged=")
	require.Equal(t, 2, strings.Count(out.String(), "unloggedUntil="), "the last one of each says that there may be more")

	out.Reset()
	now = now.Add(logWindow)
	f.tell(t.Context(), slog.LevelWarn, "asking")
	f.tell(t.Context(), slog.LevelWarn, "asking")
	require.Equal(t, 1, strings.Count(out.String(), "msg=asking unlogged=990 since="))
	require.Equal(t, 2, strings.Count(out.String(), "\n"))
}
