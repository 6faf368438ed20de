//go:build unix

package top

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// seen is what a terminal was sent so far.
type seen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// sitting opens an interactive terminal of 80 by 24.
func sitting(t *testing.T) (keys, terminal *os.File, out *seen) {
	t.Helper()
	t.Setenv("TERM", "xterm-256color")
	keys, terminal, err := pty.Open()
	require.NoError(t, err)
	require.NoError(t, pty.Setsize(terminal, &pty.Winsize{Cols: 80, Rows: 24}))
	out = &seen{}
	// The terminal is left open: the library does not wait for its reader to end, and would fail on a closed file. The reader ends when the
	// keys' file is closed.
	t.Cleanup(func() { keys.Close() })
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := keys.Read(buffer)
			out.mu.Lock()
			out.text.Write(buffer[:n])
			out.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return keys, terminal, out
}

const (
	otherScreen = "\x1b[?1049h"
	ownScreen   = "\x1b[?1049l"
)

func TestRun_ShowsAndLeavesTheTerminalAsItWas(t *testing.T) {
	for name, leave := range map[string]func(keys *os.File, stop func()){
		"Ctrl-C":         func(keys *os.File, _ func()) { _, _ = keys.WriteString("\x03") },
		"q":              func(keys *os.File, _ func()) { _, _ = keys.WriteString("q") },
		"a signal's end": func(_ *os.File, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			keys, terminal, out := sitting(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- Run(ctx, aFleet(), time.Hour, terminal, terminal) }()
			shows := func(text string) {
				require.Eventually(t, func() bool { return strings.Contains(out.String(), text) }, time.Minute, 10*time.Millisecond, text)
			}
			shows("linux-4")
			shows(otherScreen)
			_, err := keys.WriteString("?")
			require.NoError(t, err)
			shows("page up and down")
			leave(keys, stop)
			select {
			case err := <-ended:
				require.NoError(t, err)
			case <-time.After(time.Minute):
				t.Fatal("it does not end")
			}
			shows(ownScreen)
		})
	}
}

func TestRun_WithoutATerminal(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	defer file.Close()
	_, terminal, out := sitting(t)
	require.ErrorIs(t, Run(t.Context(), aFleet(), time.Hour, terminal, file), ErrNoTerminal)
	require.ErrorIs(t, Run(t.Context(), aFleet(), time.Hour, file, terminal), ErrNoTerminal)
	t.Setenv("TERM", "dumb")
	require.ErrorIs(t, Run(t.Context(), aFleet(), time.Hour, terminal, terminal), ErrNoTerminal)
	t.Setenv("TERM", "xterm")
	k := aFleet()
	k.failing = errors.New("no right")
	require.ErrorIs(t, Run(t.Context(), k, time.Hour, terminal, terminal), k.failing, "what is wrong from the start is said where it can be read")
	require.Empty(t, out.String())
}
