package machost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/childproc"
)

// maxOutput is how much of each stream of a program is kept.
const maxOutput = 64 << 10

// pipePatience is how long a program's output is waited for after its end: what it left running may hold it open for ever.
const pipePatience = 2 * time.Second

// bounded keeps the first part of what is written to it, and lets the writer go on.
type bounded struct{ text []byte }

// Write never fails.
func (b *bounded) Write(part []byte) (int, error) {
	if room := maxOutput - len(b.text); room > 0 {
		b.text = append(b.text, part[:min(room, len(part))]...)
	}
	return len(part), nil
}

// environment is the same whoever applies, and from wherever: PATH, HOME and LANG of root's. A model of a host also gets what says who its
// user is.
func (l Local) environment() []string {
	env := []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + l.real("/var/root"), "LANG=C"}
	if strings.Trim(l.Root, "/") == "" {
		return env
	}
	for _, pair := range os.Environ() {
		if strings.HasPrefix(pair, "DEVMAC_") {
			env = append(env, pair)
		}
	}
	return env
}

// Run is Host's. When ctx ends, the program and all that it has started in its process group are killed.
func (l Local) Run(ctx context.Context, command Command) (Result, error) {
	var stdout, stderr bounded
	cmd := exec.CommandContext(ctx, l.real(command.Path), command.Args...) //nolint:gosec // running programs is what it is for
	cmd.Env = append(l.environment(), command.Env...)
	cmd.Dir = l.real("/")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if command.Stdin != nil {
		cmd.Stdin = strings.NewReader(string(command.Stdin))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // nor does Ctrl-C reach it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipePatience
	err := cmd.Run()
	result := Result{Stdout: stdout.text, Stderr: stderr.text}
	if cmd.ProcessState != nil {
		result.ExitCode = cmd.ProcessState.ExitCode()
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return result, fmt.Errorf("running %s: %w", command.Path, ctx.Err())
	case errors.As(err, &exit):
		return result, nil
	case errors.Is(err, exec.ErrWaitDelay):
		return result, nil
	case err != nil && cmd.Process == nil:
		return result, &ProgramError{command.Path, reason(err)}
	case err != nil:
		return result, fmt.Errorf("running %s: %w", command.Path, err)
	}
	return result, nil
}

// reason is without the path in this process's terms.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// lockFile is held by the apply that works on the host.
const lockFile = StateDir + "/lock"

// LockedError says that another apply has held the host for longer than was waited.
type LockedError struct{ PID int }

// Error names the holder.
func (e *LockedError) Error() string {
	return fmt.Sprintf("another apply, process %d, works on this host", e.PID)
}

// Locker waits that long for another apply to end. It is for Options.Lock.
func (l Local) Locker(patience time.Duration) func(context.Context, func(string)) (func(), error) {
	return func(ctx context.Context, waiting func(string)) (func(), error) {
		ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
		defer cancel()
		if err := l.MakeDir(StateDir, Attributes{Mode: 0o755}); err != nil {
			return nil, err
		}
		again := time.NewTicker(lockEvery) // waiting in flock itself could not be ended
		defer again.Stop()
		for told := false; ; told = true {
			held, err := childproc.Lock(l.real(lockFile))
			if err == nil {
				return func() { _ = held.Close() }, nil
			}
			var other *childproc.HeldError
			if !errors.As(err, &other) {
				return nil, pathError("locking", lockFile, err)
			}
			if !told {
				waiting(fmt.Sprintf("waiting for %v", &LockedError{other.PID}))
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				if errors.Is(context.Cause(ctx), errPatience) {
					return nil, &StepError{Step: "lock", File: lockFile, Err: &LockedError{other.PID},
						Remedy: "Wait for it to end, or look at what holds it up, and apply again."}
				}
				return nil, ctx.Err()
			}
		}
	}
}

const lockEvery = 100 * time.Millisecond

var errPatience = errors.New("the other apply takes too long")
