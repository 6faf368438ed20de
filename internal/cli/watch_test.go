package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

// watched shows what it is given, one after the other, and then is interrupted.
func watched(t *testing.T, screen bool, flags []string, shows ...any) (output string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ticks := make(chan time.Time, len(shows))
	every := time.Duration(0)
	w := cli.Watch{
		Ticks:  func(d time.Duration) (<-chan time.Time, func()) { every = d; return ticks, func() {} },
		Screen: func(io.Writer) bool { return screen },
	}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	w.Flags(fs)
	require.NoError(t, fs.Parse(flags))
	var out bytes.Buffer
	n := 0
	err = w.Run(ctx, &out, func(_ context.Context, to io.Writer) error {
		if n == len(shows) {
			cancel()
			return context.Canceled
		}
		show := shows[n]
		n++
		ticks <- time.Time{}
		if failed, ok := show.(error); ok {
			return failed
		}
		_, err := fmt.Fprintln(to, show)
		return err
	})
	if len(flags) > 0 && err == nil {
		require.Positive(t, every)
	}
	return out.String(), err
}

func TestWatch(t *testing.T) {
	away := errors.New("the server cannot be reached")
	out, err := watched(t, true, nil, "a", "b")
	require.NoError(t, err)
	require.Equal(t, "a\n", out, "once, unless it is asked to watch")

	const clear = "\x1b[H\x1b[J"
	out, err = watched(t, true, []string{"-w"}, "a", "a", "b")
	require.NoError(t, err, "Ctrl-C is how it ends")
	require.Equal(t, clear+"a\n"+clear+"a\n"+clear+"b\n", out)

	out, err = watched(t, false, []string{"--watch", "--watch-every", "1s"}, "a", "a", "b")
	require.NoError(t, err)
	require.Equal(t, "a\nb\n", out, "a pipe is given what has changed")
	out, err = watched(t, false, []string{"-w"}, "linux   9.8s   -", "linux   10s    -", "linux   1m00s   -", "linux   1m02s   idle", "mac   1m02s   idle")
	require.NoError(t, err)
	require.Equal(t, "linux   9.8s   -\nlinux   1m02s   idle\nmac   1m02s   idle\n", out, "that time passes is no change")

	_, err = watched(t, true, []string{"-w", "--watch-every", "1ms"}, "a")
	require.EqualError(t, err, "--watch-every must be 250ms or more, got 1ms")

	_, err = watched(t, true, []string{"--watch"}, away, "a")
	require.ErrorIs(t, err, away, "what does not work at all is said at once")
	out, err = watched(t, true, []string{"--watch"}, "a", away, "b")
	require.NoError(t, err)
	require.Equal(t, clear+"a\n"+clear+"the server cannot be reached\nRetrying.\n\nLast known:\n\na\n"+clear+"b\n", out)
	out, err = watched(t, false, []string{"--watch"}, "a", away, away, "a")
	require.NoError(t, err)
	require.Equal(t, "a\nthe server cannot be reached\nRetrying.\na\n", out)
}
