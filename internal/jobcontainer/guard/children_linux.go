package guard

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

// scoreStep is by how much the kernel prefers a child to the guard when memory is short (proc_pid_oom_score_adj(5)).
const (
	scoreStep = 100
	scoreMost = 1000
)

// children are the processes that the guard has started. The first process of a container also gets all orphans, so one place waits
// for all of them: with waits per process, one of them would take another's status.
type children struct {
	mu      sync.Mutex // also held while a process is started and while one is reaped, so that a PID in running is never another process
	running map[int]*child
	ending  bool     // nothing is started any more
	score   *os.File // this process's oom_score_adj; nil where it cannot be changed
	own     int      // its value
}

// child is one of them. It leads a session and a process group of its own.
type child struct {
	pid     int
	started uint64             // in the kernel's ticks since its boot
	killed  int                // memoryKills at its start
	done    chan struct{}      // closed when it was reaped
	status  syscall.WaitStatus // when done
}

func newChildren() *children {
	c := &children{running: map[int]*child{}}
	score, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return c
	}
	var text [16]byte
	n, _ := score.ReadAt(text[:], 0)
	if c.own, err = strconv.Atoi(strings.TrimSpace(string(text[:n]))); err == nil {
		c.score = score
	}
	return c
}

// start starts a program.
func (c *children) start(path string, argv []string, attr *syscall.ProcAttr) (*child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		return nil, errEnding
	}
	killed := memoryKills()
	c.setScore(min(scoreMost, c.own+scoreStep)) // a child inherits it, and so has it before its first instruction
	pid, err := syscall.ForkExec(path, argv, attr)
	c.setScore(c.own)
	if err != nil {
		return nil, err
	}
	started := &child{pid: pid, killed: killed, done: make(chan struct{})}
	if s, found := readStat(pid); found {
		started.started = s.started
	}
	c.running[pid] = started
	return started, nil
}

func (c *children) setScore(value int) {
	if c.score != nil {
		_, _ = c.score.WriteAt([]byte(strconv.Itoa(value)), 0) // lowering it to what it was needs no capability
	}
}

// reap takes the status of all children that have ended, orphans included. It reports whether others are left.
func (c *children) reap() (left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 || err != nil {
			return err == nil
		}
		if ended, ours := c.running[pid]; ours {
			delete(c.running, pid)
			ended.status = status
			close(ended.done)
		}
	}
}

// signal sends a signal to the child, or to its process group; nothing if it has ended.
func (c *children) signal(ch *child, group bool, number syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[ch.pid] != ch {
		return
	}
	if group {
		_ = syscall.Kill(-ch.pid, number)
		return
	}
	_ = syscall.Kill(ch.pid, number)
}

// known returns the PIDs of the children that have not been reaped.
func (c *children) known() map[int]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := map[int]bool{}
	for pid := range c.running {
		known[pid] = true
	}
	return known
}

// killAll kills everything in the container but this process.
func (c *children) killAll() {
	if os.Getpid() == 1 { // elsewhere it would be everything on the machine
		_ = unix.Kill(-1, unix.SIGKILL)
	}
}

// errEnding: the container was asked to end.
var errEnding = errors.New("the container is ending")

// end kills everything in the container but this process, and waits until it is gone. What cannot be killed within killPatience dies with the
// container.
func (c *children) end(ctx context.Context) {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, killPatience)
	defer cancel()
	for c.killAll(); c.reap() && ctx.Err() == nil; c.killAll() {
		<-time.After(killPause)
	}
}

// wait returns how a child ended. One that cannot be killed now, such as in a read from a dead disk, is waited for no longer than
// killPatience.
func (c *children) wait(ch *child) wire.Exit {
	limit := time.NewTimer(killPatience)
	defer limit.Stop()
	select {
	case <-ch.done:
	case <-limit.C:
		return wire.Exit{Code: exitSignal + int(syscall.SIGKILL), Signal: int(syscall.SIGKILL), Text: "the process could not be killed"}
	}
	exit := wire.Exit{Code: ch.status.ExitStatus()}
	if ch.status.Signaled() {
		exit = wire.Exit{Code: exitSignal + int(ch.status.Signal()), Signal: int(ch.status.Signal())}
	}
	exit.OutOfMemory = exit.Code == exitSignal+int(syscall.SIGKILL) && memoryKills() > ch.killed // a shell returns the code of what it ran
	return exit
}
