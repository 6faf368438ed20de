package guard

import (
	"errors"
	"io/fs"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// RunnerEndedError says that the runner has ended, after processes of the job could run in the container. It has no text, because nothing is wrong.
type RunnerEndedError struct{}

// Error is empty.
func (RunnerEndedError) Error() string { return "" }

// ExitCode is that of the process.
func (RunnerEndedError) ExitCode() int { return jobcontainer.ExitRunnerEnded }

// withoutPath takes off a path that the caller's text has already.
func withoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
