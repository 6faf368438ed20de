package machost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// defaultLimit is how much of each stream of a program is kept, unless its command says otherwise.
const defaultLimit = 64 << 10

// pipePatience is how long a program's output is waited for after its end: what it left running may hold it open for ever.
const pipePatience = 2 * time.Second

// bounded keeps the first bytes that are written to it, and discards the rest.
type bounded struct {
	text  []byte
	limit int
	cut   bool
}

// Write never fails.
func (b *bounded) Write(part []byte) (int, error) {
	kept := min(b.limit-len(b.text), len(part))
	b.text = append(b.text, part[:kept]...)
	b.cut = b.cut || kept < len(part)
	return len(part), nil
}

// environment is the same for every caller: PATH, HOME and LANG of root. A model of a host also receives the variable with its user.
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

// programPatience is how long a program may take: all that steps run end within seconds, and one that hangs would hold the lock of the host
// against every later apply.
const programPatience = 5 * time.Minute

// HungError reports that a program did not end. It was killed.
type HungError struct {
	Path  string
	After time.Duration
}

// Error names the program.
func (e *HungError) Error() string {
	return fmt.Sprintf("running %s: timed out after %s and was killed", e.Path, e.After)
}

// Run is Host's. When ctx ends, or the program takes too long, the program and all that it has started in its process group are killed.
func (l Local) Run(ctx context.Context, command Command) (Result, error) {
	patience := cmp.Or(l.Patience, programPatience)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, &HungError{command.Path, patience})
	defer cancel()
	limit := cmp.Or(command.Limit, defaultLimit)
	stdout, stderr := bounded{limit: limit}, bounded{limit: limit}
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
	result := Result{Stdout: stdout.text, Stderr: stderr.text, Cut: stdout.cut || stderr.cut}
	if cmd.ProcessState != nil {
		result.ExitCode = cmd.ProcessState.ExitCode()
	}
	var exit *exec.ExitError
	var hung *HungError
	switch {
	case errors.As(context.Cause(ctx), &hung):
		return result, hung
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

// LockedError reports that another apply has held the host for longer than was waited.
type LockedError struct{ PID int }

// Error names the holder.
func (e *LockedError) Error() string {
	return fmt.Sprintf("another apply (PID %d) is running on this host", e.PID)
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
		for reported := false; ; reported = true {
			held, err := l.lock()
			if err == nil {
				return func() { _ = held.Close() }, nil
			}
			var other *childproc.HeldError
			if !errors.As(err, &other) {
				return nil, err
			}
			if !reported {
				waiting(fmt.Sprintf("waiting for %v", &LockedError{other.PID}))
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				if errors.Is(context.Cause(ctx), errPatience) {
					return nil, &StepError{Step: "lock", File: lockFile, Err: &LockedError{other.PID},
						Remedy: "Wait for it to finish, or find out what delays it, and apply again."}
				}
				return nil, ctx.Err()
			}
		}
	}
}

// lock opens the file as all others are opened: relative to its directory, and through no link that another user has planted.
func (l Local) lock() (*os.File, error) {
	at, err := l.find(lockFile, 0)
	if err != nil {
		return nil, err
	}
	defer at.close()
	if info, err := at.dir.Lstat(at.name); err == nil && !info.Mode().IsRegular() {
		return nil, &LinkError{Path: lockFile, Link: lockFile}
	}
	file, err := at.dir.OpenFile(at.name, os.O_CREATE|os.O_RDWR|syscall.O_NONBLOCK, 0o600)
	if err == nil {
		file, err = childproc.LockFile(file, lockFile)
	}
	var other *childproc.HeldError
	if err != nil && !errors.As(err, &other) {
		return nil, pathError("locking", lockFile, err)
	}
	return file, err
}

const lockEvery = 100 * time.Millisecond

var errPatience = errors.New("timed out waiting for the other apply")
