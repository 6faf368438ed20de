package buildkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// RuncName is the name under which the agent's binary takes the place of runc.
const RuncName = "bullpen-runc"

// runcPrograms are the names of runc in images of BuildKit, in the order in which they are looked for.
var runcPrograms = []string{"buildkit-runc", "runc"}

// added are the options without which runc fails under a container runtime's default seccomp profile, which permits neither keyctl nor
// pivot_root. A session keyring of its own is a defence between containers of different owners, and so is the stricter change of the root;
// all that a daemon of one pod runs belongs to one job.
var added = []string{"--no-new-keyring", "--no-pivot"}

// valued are runc's global options that are followed by a value (main.go of runc 1.5).
var valued = []string{"--criu", "--log", "--log-format", "--root", "--rootless"}

// Runc becomes runc, with the arguments that a process named RuncName was given. It returns only if it cannot.
func Runc(args []string) error {
	for _, name := range runcPrograms {
		program, err := exec.LookPath(name)
		if errors.Is(err, exec.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("starting %s: %w", name, err)
		}
		return fmt.Errorf("starting %s: %w", program, syscall.Exec(program, append([]string{program}, runcArguments(args)...), os.Environ())) //nolint:gosec // the daemon's own
	}
	return fmt.Errorf("starting runc: the image has none of %s", strings.Join(runcPrograms, ", "))
}

// runcArguments adds options to the commands that start a container.
func runcArguments(args []string) []string {
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case slices.Contains(valued, arg):
			i++
		case strings.HasPrefix(arg, "-"):
		case arg == "run", arg == "create":
			return slices.Insert(slices.Clone(args), i+1, added...)
		default:
			return args
		}
	}
	return args
}
