package run

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
)

// got is a signal that a step's processes got, and when.
type got struct {
	At     time.Duration
	Signal syscall.Signal
}

// deaf is a step that notes signals, and ends with its connection.
func deaf(begun time.Time, seen *[]got) func(context.Context, <-chan syscall.Signal) (client.Exit, error) {
	return func(ctx context.Context, signals <-chan syscall.Signal) (client.Exit, error) {
		for {
			select {
			case s := <-signals:
				*seen = append(*seen, got{time.Since(begun), s})
			case <-ctx.Done():
				*seen = append(*seen, got{time.Since(begun), syscall.SIGKILL})
				return client.Exit{}, ctx.Err()
			}
		}
	}
}

// SIGINT, 7.5 s, SIGTERM, 2.5 s, kill: also if the runner sends nothing after the first.
func TestExec_CancelsAsGitHubsRunnerDoes(t *testing.T) {
	whole := []got{{time.Second, syscall.SIGINT}, {8500 * time.Millisecond, syscall.SIGTERM}, {11 * time.Second, syscall.SIGKILL}}
	for name, test := range map[string]struct {
		send map[time.Duration]os.Signal
		want []got
	}{
		"alone": {map[time.Duration]os.Signal{time.Second: os.Interrupt}, whole},
		"as the runner": {map[time.Duration]os.Signal{time.Second: os.Interrupt, 8499 * time.Millisecond: syscall.SIGTERM},
			[]got{whole[0], {8499 * time.Millisecond, syscall.SIGTERM}, {10999 * time.Millisecond, syscall.SIGKILL}}},
		"repeated":     {map[time.Duration]os.Signal{time.Second: os.Interrupt, 2 * time.Second: os.Interrupt}, whole},
		"SIGTERM only": {map[time.Duration]os.Signal{time.Second: syscall.SIGTERM}, []got{{time.Second, syscall.SIGTERM}, {3500 * time.Millisecond, syscall.SIGKILL}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod, signals := newStandIn(t), make(chan os.Signal, 4)
				var seen []got
				pod.guard("job").run = deaf(time.Now(), &seen)
				c := pod.call()
				c.Signals = signals
				for after, signal := range test.send {
					time.AfterFunc(after, func() { signals <- signal })
				}
				exit, err := c.exec(t.Context(), pod.guard("job"), client.Process{})
				require.NoError(t, err)
				require.Equal(t, 137, exit.Code)
				require.Equal(t, test.want, seen)
			})
		})
	}
}

// A signal may end ctx before this process listens for signals.
func TestExec_IsCancelledByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newStandIn(t)
		var seen []got
		pod.guard("job").run = deaf(time.Now(), &seen)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := pod.call().exec(ctx, pod.guard("job"), client.Process{})
		require.NoError(t, err)
		require.Equal(t, []got{{time.Second, syscall.SIGINT}, {8500 * time.Millisecond, syscall.SIGTERM}, {11 * time.Second, syscall.SIGKILL}}, seen)
	})
}

// A step that obeys a signal ends with its own code.
func TestExec_PassesTheCodeOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, signals := newStandIn(t), make(chan os.Signal, 1)
		pod.guard("job").run = func(_ context.Context, signals <-chan syscall.Signal) (client.Exit, error) {
			<-signals // bounded: by the bubble's clock
			return client.Exit{Code: 42}, nil
		}
		c := pod.call()
		c.Signals = signals
		time.AfterFunc(time.Second, func() { signals <- os.Interrupt })
		exit, err := c.exec(t.Context(), pod.guard("job"), client.Process{})
		require.NoError(t, err)
		require.Equal(t, client.Exit{Code: 42}, exit)
	})
}
