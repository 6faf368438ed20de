package health

import (
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// Defaults of Docker. A zero in a check means them.
const (
	DefaultInterval      = 30 * time.Second
	DefaultTimeout       = 30 * time.Second
	DefaultStartPeriod   = 0
	DefaultStartInterval = 5 * time.Second
	DefaultRetries       = 3
	// MostTimeout is in place of a longer timeout, which guards refuse.
	MostTimeout = 10 * time.Minute
	// MaxOutput is how many bytes of a check's output are kept.
	MaxOutput = 4096
)

// Override is what `options:` says of health. Zero values leave the image's.
type Override struct {
	Disabled                                      bool   // --no-healthcheck
	Command                                       string // --health-cmd, run by /bin/sh -c
	Interval, Timeout, StartPeriod, StartInterval time.Duration
	Retries                                       int
}

// Check says how to find out whether a container is healthy. Its numbers are never zero, except StartPeriod.
type Check struct {
	Command       []string      `json:"command"`
	Interval      time.Duration `json:"interval"`      // from the end of one check to the start of the next, and before the first
	Timeout       time.Duration `json:"timeout"`       // of one check; then it is killed, and has failed
	StartPeriod   time.Duration `json:"startPeriod"`   // after the start, in which a failed check does not count
	StartInterval time.Duration `json:"startInterval"` // in place of Interval in StartPeriod
	Retries       int           `json:"retries"`       // failed checks in a row that make it unhealthy
}

// For returns the check of a container, or nil if it has none.
func For(image *jobcontainer.Healthcheck, override Override) *Check {
	if override.Disabled {
		return nil
	}
	var merged jobcontainer.Healthcheck
	if image != nil {
		merged = *image
	}
	if override.Command != "" {
		merged.Test = []string{"CMD-SHELL", override.Command}
	}
	var command []string
	switch {
	case len(merged.Test) < 2:
		return nil
	case merged.Test[0] == "CMD":
		command = merged.Test[1:]
	case merged.Test[0] == "CMD-SHELL":
		command = append([]string{"/bin/sh", "-c"}, merged.Test[1:]...)
	default:
		return nil
	}
	return &Check{
		Command: command, Interval: first(override.Interval, merged.Interval, DefaultInterval), Timeout: min(first(override.Timeout, merged.Timeout, DefaultTimeout), MostTimeout),
		StartPeriod:   first(override.StartPeriod, merged.StartPeriod, DefaultStartPeriod),
		StartInterval: first(override.StartInterval, merged.StartInterval, DefaultStartInterval),
		Retries:       first(override.Retries, merged.Retries, DefaultRetries),
	}
}

func first[T int | time.Duration](values ...T) T {
	for _, value := range values {
		if value > 0 {
			return value
		}
	}
	return 0
}

// Status is Docker's status of health.
type Status string

// The statuses.
const (
	Starting  Status = "starting"
	Healthy   Status = "healthy"
	Unhealthy Status = "unhealthy"
)

// State is what is known about a container that has a check.
type State struct {
	Started time.Time // of the container
	Status  Status
	Streak  int    // failed checks in a row that count
	Output  string // of the last check
}

// Start returns the state of a container that was just started.
func Start(started time.Time) State { return State{Started: started, Status: Starting} }

// Result is what one check gave.
type Result struct {
	Start    time.Time // when it was started
	ExitCode int       // -1 if it was killed, or could not be started
	Output   string
}

// TimedOut returns the result of a check that was killed after its timeout.
func (c Check) TimedOut(start time.Time, output string) Result {
	text := "Health check exceeded timeout (" + c.Timeout.String() + ")"
	if output != "" {
		text += ": " + output
	}
	return Result{Start: start, ExitCode: -1, Output: text}
}

// After returns the state after a result.
func (s State) After(check Check, result Result) State {
	s.Output = result.Output
	if len(s.Output) > MaxOutput {
		s.Output = s.Output[:MaxOutput] + "..."
	}
	if result.ExitCode == 0 {
		s.Streak, s.Status = 0, Healthy
		return s
	}
	if s.Status == Starting && result.Start.Sub(s.Started) < check.StartPeriod {
		return s
	}
	if s.Streak++; s.Streak >= check.Retries {
		s.Status = Unhealthy
	}
	return s
}

// Wait returns the time until the next check: before the first, and at the end of each.
func (s State) Wait(check Check, now time.Time) time.Duration {
	if left := check.StartPeriod - now.Sub(s.Started); left > 0 && s.Status == Starting {
		return min(check.StartInterval, max(left, time.Millisecond))
	}
	return check.Interval
}
