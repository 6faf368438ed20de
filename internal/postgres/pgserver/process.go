package pgserver

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is one program that we started; done is closed after it was reaped.
type process struct {
	pid  int
	done chan struct{}
	err  error // valid after done
}

// startOwned starts the command and reaps it. The kernel ties a child to the thread that started it, not to the
// process, so that thread is kept for as long as the child lives.
func startOwned(cmd *exec.Cmd) (*process, error) {
	child := &process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			child.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			child.err = cmd.Wait()
			close(child.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return child, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end signals the process and, when it takes too long, kills its whole group. It returns after it was reaped.
func (p *process) end(ctx context.Context, first syscall.Signal) error {
	const immediatePatience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_ = syscall.Kill(p.pid, first) // it may have ended by itself
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	_ = syscall.Kill(p.pid, syscall.SIGQUIT)
	timer := time.NewTimer(immediatePatience)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		<-p.done
	}
	return fmt.Errorf("stopping PostgreSQL: it had to be cut off: %w", ctx.Err())
}

func tail(file string, lines int) string {
	f, err := os.Open(file)
	if err != nil {
		return "(unreadable)"
	}
	defer func() { _ = f.Close() }()
	const most = 4096
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	text, _ := io.ReadAll(f)
	return lastLines(string(text), lines)
}

func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > count {
		lines = lines[len(lines)-count:]
	}
	return strings.Join(lines, " | ")
}
