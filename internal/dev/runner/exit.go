package runner

import "errors"

// Exit codes of GitHub's listener, which supervisors act on.
const (
	// ExitTerminated: this runner is of no further use, its registration is gone or unusable.
	ExitTerminated = 1
	// ExitRetryable: something unexpected failed; the same runner may be started again.
	ExitRetryable = 2
	// ExitSessionConflict: another process holds this runner's session and kept it.
	ExitSessionConflict = 5
	// ExitVersionDeprecated: the service no longer accepts this version, and the environment asks for this exit
	// code then.
	ExitVersionDeprecated = 7
)

// envTellsVersion, set to true, has a runner whose version is refused exit with ExitVersionDeprecated; otherwise it exits with ExitTerminated.
const envTellsVersion = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"

// ExitError is why the runner ended without success, and the exit code for it.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode is what the process should exit with.
func (e *ExitError) ExitCode() int { return e.Code }

var (
	// ErrBadJIT marks a JIT config that cannot be read.
	ErrBadJIT = errors.New("bad JIT config")
	// errRemoved: the service no longer knows this runner.
	errRemoved = errors.New("the runner's registration has been removed")
	// errVersion: the service refuses this version.
	errVersion = errors.New("this runner version is no longer accepted")
	// errSession: the session is no longer valid, a new one may be.
	errSession = errors.New("the session is no longer valid")
	// errConflict: another session of this runner is alive.
	errConflict = errors.New("another session of this runner is active")
	// errJobGone: the service no longer has this job for this runner.
	errJobGone = errors.New("the job is no longer ours")
)
