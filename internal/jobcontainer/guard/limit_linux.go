package guard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

// limitArgv is the command that sets a limit for itself and becomes the program. A limit that the guard set for a moment could not be
// raised again, and one that it set for a process that runs already would come too late.
func limitArgv(self string, limits wire.Limits, program string, argv []string) []string {
	return append([]string{self, "guard", "--nofile", fmt.Sprintf("%d:%d", limits.Soft, limits.Hard), "--", program}, argv...)
}

// limitError is a program that was not started: Main exits with the code that shells and Docker use for it.
type limitError struct{ error }

// ExitCode is for the command line.
func (limitError) ExitCode() int { return exitNotExecutable }

func (e limitError) Unwrap() error { return e.error }

// setLimit sets as much as there is: no process of a container may raise its hard limit. The log of the process has a line about less.
func setLimit(asked string, limit unix.Rlimit) error {
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
		return err
	}
	if limit.Max > most.Max {
		limit.Max, limit.Cur = most.Max, min(limit.Cur, most.Max)
		fmt.Fprintf(os.Stderr, "Option '--ulimit nofile=%s' is above the hard limit of this runner: the limits are %d:%d.\n", asked, limit.Cur, limit.Max)
	}
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

// Limit sets the limit of open files, soft:hard, and becomes the program argv[0] with the arguments argv[1:], the first of which is its name
// for itself. It returns only an error.
func Limit(nofile string, argv []string) error {
	soft, hard, found := strings.Cut(nofile, ":")
	var limit unix.Rlimit
	var errs [2]error
	limit.Cur, errs[0] = strconv.ParseUint(soft, 10, 64)
	limit.Max, errs[1] = strconv.ParseUint(hard, 10, 64)
	if !found || errs != [2]error{} || len(argv) < 2 {
		return limitError{errors.New("limiting a process: expected --nofile soft:hard, a program and its name")}
	}
	if err := setLimit(nofile, limit); err != nil {
		return limitError{fmt.Errorf("setting --ulimit nofile=%s: %w", nofile, err)}
	}
	if err := unix.Exec(argv[0], argv[1:], os.Environ()); err != nil {
		return limitError{fmt.Errorf("starting %s: %w", argv[1], err)}
	}
	return nil
}
