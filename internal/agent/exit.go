package agent

import "fmt"

// Exit codes of the agent itself. The supervisor otherwise exits with the runner's own, but for exitOutdated with a job.
const (
	exitFailed        = 1
	exitOutdated      = 7 // the runner's, whose version GitHub refuses (podsigns.ExitOutdated): such a runner has no job
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignalBase    = 128
)

// ExitError asks for an exit code. Its text is empty when there is nothing to explain.
type ExitError struct {
	Code int
	Text string
}

// Error is the sentence for a person, or empty.
func (e *ExitError) Error() string { return e.Text }

// ExitCode is the code that the process ends with.
func (e *ExitError) ExitCode() int { return e.Code }

func fail(format string, args ...any) *ExitError {
	return &ExitError{Code: exitFailed, Text: fmt.Sprintf(format, args...)}
}
