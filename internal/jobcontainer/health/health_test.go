package health

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

var start = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func TestFor(t *testing.T) {
	image := &jobcontainer.Healthcheck{Test: []string{"CMD", "check", "-x"}, Interval: time.Second, Timeout: 2 * time.Second, StartPeriod: 3 * time.Second, StartInterval: 4 * time.Second, Retries: 5}
	of := func(command ...string) *Check {
		return &Check{Command: command, Interval: time.Second, Timeout: 2 * time.Second, StartPeriod: 3 * time.Second, StartInterval: 4 * time.Second, Retries: 5}
	}
	for _, c := range []struct {
		what     string
		image    *jobcontainer.Healthcheck
		override Override
		want     *Check
	}{
		{"none", nil, Override{}, nil},
		{"the image's", image, Override{}, of("check", "-x")},
		{"switched off", image, Override{Disabled: true}, nil},
		{"the image's is NONE", &jobcontainer.Healthcheck{Test: []string{"NONE"}}, Override{Interval: time.Second}, nil},
		{"unknown", &jobcontainer.Healthcheck{Test: []string{"HTTP", "/"}}, Override{}, nil},
		{"numbers without a command", nil, Override{Interval: time.Second}, nil},
		{"another command", image, Override{Command: "redis-cli ping"}, of("/bin/sh", "-c", "redis-cli ping")},
		{"a shell's", &jobcontainer.Healthcheck{Test: []string{"CMD-SHELL", "a || b"}}, Override{},
			&Check{Command: []string{"/bin/sh", "-c", "a || b"}, Interval: 30 * time.Second, Timeout: 30 * time.Second, StartInterval: 5 * time.Second, Retries: 3}},
		{"other numbers", image, Override{Interval: 6 * time.Second, Timeout: 7 * time.Second, StartPeriod: 8 * time.Second, StartInterval: 9 * time.Second, Retries: 10},
			&Check{Command: []string{"check", "-x"}, Interval: 6 * time.Second, Timeout: 7 * time.Second, StartPeriod: 8 * time.Second, StartInterval: 9 * time.Second, Retries: 10}},
		{"a timeout that guards refuse", nil, Override{Command: "x", Timeout: time.Hour},
			&Check{Command: []string{"/bin/sh", "-c", "x"}, Interval: 30 * time.Second, Timeout: 10 * time.Minute, StartInterval: 5 * time.Second, Retries: 3}},
	} {
		require.Equal(t, c.want, For(c.image, c.override), c.what)
	}
}

func TestAfter(t *testing.T) {
	check := Check{StartPeriod: 10 * time.Second, Retries: 3}
	type step struct {
		seconds, code int
		status        Status
		streak        int
	}
	for what, steps := range map[string][]step{
		"healthy at once": {{1, 0, Healthy, 0}},
		"three failures":  {{10, 1, Starting, 1}, {11, 1, Starting, 2}, {12, 1, Unhealthy, 3}},
		"failures of the start period do not count": {{1, 1, Starting, 0}, {9, -1, Starting, 0}, {10, 1, Starting, 1}},
		"after a success they count":                {{1, 0, Healthy, 0}, {2, 1, Healthy, 1}, {3, 1, Healthy, 2}, {4, 1, Unhealthy, 3}},
		"a success begins anew":                     {{10, 1, Starting, 1}, {11, 1, Starting, 2}, {12, 0, Healthy, 0}, {13, 1, Healthy, 1}},
		"unhealthy is not for ever":                 {{10, 1, Starting, 1}, {11, 1, Starting, 2}, {12, 1, Unhealthy, 3}, {13, 1, Unhealthy, 4}, {14, 0, Healthy, 0}},
	} {
		state := Start(start)
		require.Equal(t, Starting, state.Status)
		for i, s := range steps {
			state = state.After(check, Result{Start: start.Add(time.Duration(s.seconds) * time.Second), ExitCode: s.code, Output: "out"})
			require.Equal(t, s.status, state.Status, "%s, step %d", what, i)
			require.Equal(t, s.streak, state.Streak, "%s, step %d", what, i)
			require.Equal(t, "out", state.Output)
		}
	}
}

func TestAfter_BoundsTheOutput(t *testing.T) {
	state := Start(start).After(Check{Retries: 1}, Result{Start: start, Output: strings.Repeat("x", MaxOutput+1)})
	require.Equal(t, strings.Repeat("x", MaxOutput)+"...", state.Output)
}

func TestTimedOut(t *testing.T) {
	check := Check{Timeout: 2 * time.Second, Retries: 1}
	require.Equal(t, Result{Start: start, ExitCode: -1, Output: "Health check exceeded timeout (2s)"}, check.TimedOut(start, ""))
	require.Equal(t, "Health check exceeded timeout (2s): half", check.TimedOut(start, "half").Output)
	require.Equal(t, Unhealthy, Start(start).After(check, check.TimedOut(start, "")).Status)
}

func TestWait(t *testing.T) {
	check := Check{Interval: 30 * time.Second, StartPeriod: 12 * time.Second, StartInterval: 5 * time.Second, Retries: 3}
	starting := Start(start)
	for seconds, want := range map[int]int{0: 5, 5: 5, 8: 4, 11: 1, 12: 30, 60: 30} {
		require.Equal(t, time.Duration(want)*time.Second, starting.Wait(check, start.Add(time.Duration(seconds)*time.Second)), "after %d s", seconds)
	}
	healthy := starting.After(check, Result{Start: start})
	require.Equal(t, 30*time.Second, healthy.Wait(check, start))
	require.Equal(t, 30*time.Second, Start(start).Wait(Check{Interval: 30 * time.Second, StartInterval: 5 * time.Second}, start), "without a start period")
}

func TestTexts(t *testing.T) {
	var waits []int
	for polls := range 7 {
		waits = append(waits, int(Poll(polls)/time.Second))
	}
	require.Equal(t, []int{2, 4, 8, 16, 32, 32, 32}, waits)
	require.Equal(t, 32*time.Second, Poll(1000))
	require.Equal(t, "db service is starting, waiting 4 seconds before checking again.", WaitingText("db", Poll(1)))
	require.Equal(t, "db service is healthy.", HealthyText("db"))
	require.Equal(t, "Failed to initialize container postgres:17", FailedText("postgres:17"))
	require.Equal(t, "One or more containers failed to start.", AllFailedText())
}
