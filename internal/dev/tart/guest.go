//go:build unix

package tart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// guestCommand is the hidden argument that makes this program the guest of a VM; guestSpecFile says which.
const (
	guestCommand  = "__guest"
	guestSpecFile = "guest.json"
)

// Descriptors that `run` hands to the guest.
const (
	fdLife   = 3 // ends when `run` has ended
	fdSocket = 4 // listens for `exec`
	fdDir    = 5 // keeps the guest's directory from being collected
)

// guestVolumes is where a macOS guest sees the shared directories (Tart 4.2).
const guestVolumes = "/Volumes/My Shared Files"

// SharesVariable tells programs in a guest of the fake where the shared directories are.
const SharesVariable = "BULLPEN_GUEST_SHARES"

// guestSpec is what the guest has to know.
type guestSpec struct {
	Name     string   `json:"name"`
	Dir      string   `json:"dir"`
	Image    Image    `json:"image"`
	Shares   []share  `json:"shares"`
	Boot     Duration `json:"boot"`
	Address  Duration `json:"address"`
	Shutdown Duration `json:"shutdown"`
}

func (g guestSpec) shares() string { return filepath.Join(g.Dir, "shares") }
func (g guestSpec) home() string   { return filepath.Join(g.Dir, "home") }
func (g guestSpec) bin() string    { return filepath.Join(g.Dir, "bin") }

// guest is the ancestor of all of a VM's processes. Orphans become its children.
type guest struct {
	guestSpec
	children *reaper
	booted   chan struct{}
}

// runGuest is the body of the guest's process. It returns when nothing of the guest is left.
func runGuest(dir string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP)
	for _, fd := range []int{fdLife, fdSocket, fdDir} {
		syscall.CloseOnExec(fd)
	}
	adoptOrphans()
	g := &guest{children: newReaper(), booted: make(chan struct{})}
	encoded, err := os.ReadFile(filepath.Join(dir, guestSpecFile))
	if err == nil {
		err = json.Unmarshal(encoded, &g.guestSpec)
	}
	if err != nil {
		return fmt.Errorf("reading what the guest is: %w", err)
	}
	if err := g.furnish(); err != nil {
		return fmt.Errorf("making the guest's files: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	unplugged := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(fdLife, "life"))
		close(unplugged)
	}()
	go g.boot(ctx)
	go g.answer(os.NewFile(fdSocket, "socket"))

	for {
		select {
		case <-unplugged:
			g.children.end()
			return nil
		case s := <-signals:
			if s != syscall.SIGTERM {
				continue
			}
			// The guest shuts down: its processes are asked, and then ended (Tart 4.1: `run` exits with 0).
			g.children.finish(time.Duration(g.Shutdown), unplugged)
			return nil
		}
	}
}

// furnish makes the home directory, the shared directories, and the command `shutdown`.
func (g *guest) furnish() error {
	for _, dir := range []string{g.home(), g.bin(), g.shares(), filepath.Join(g.home(), "tmp")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	script := fmt.Sprintf("#!/bin/sh\nexec kill -TERM %d\n", os.Getpid())
	if err := os.WriteFile(filepath.Join(g.bin(), "shutdown"), []byte(script), 0o700); err != nil { //nolint:gosec // it must be executable
		return err
	}
	private := ownMounts() == nil
	for _, s := range g.Shares {
		at := filepath.Join(g.shares(), s.Name)
		if private && os.MkdirAll(at, 0o700) == nil && bindShare(s.Path, at, s.ReadOnly) == nil {
			continue
		}
		// Without the right to mount, a link: what is shared read-only can then be written.
		if s.Name == "" {
			if err := os.Remove(at); err != nil {
				return err
			}
			at = filepath.Clean(at)
		} else if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Symlink(s.Path, at); err != nil {
			return err
		}
	}
	return nil
}

// boot is over after the time it takes. Then it starts what the image starts at boot.
func (g *guest) boot(ctx context.Context) {
	pause(ctx, g.Boot)
	close(g.booted)
	if len(g.Image.Boot) == 0 {
		return
	}
	log, err := os.OpenFile(filepath.Join(g.Dir, "boot.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, "the guest's own command was not started:", err)
		return
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return
	}
	defer null.Close()
	if _, err := g.start(g.Image.Boot, []*os.File{null, log, log}, false); err != nil {
		fmt.Fprintln(os.Stderr, "the guest's own command was not started:", err)
	}
}

// environ is the whole environment of a program in the guest: nothing of the host's.
func (g *guest) environ() []string {
	return []string{
		"HOME=" + g.home(), "TMPDIR=" + filepath.Join(g.home(), "tmp"), "USER=admin", "LOGNAME=admin", "SHELL=/bin/sh", "LANG=en_US.UTF-8",
		"PATH=" + g.bin() + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", SharesVariable + "=" + g.shares(),
	}
}

// start starts a program in the guest, with its shared directories where they are on this machine.
func (g *guest) start(argv []string, files []*os.File, terminal bool) (*started, error) {
	inside := make([]string, len(argv))
	for i, a := range argv {
		if rest, found := strings.CutPrefix(a, guestVolumes); found && (rest == "" || rest[0] == '/') {
			a = g.shares() + rest
		}
		inside[i] = a
	}
	program, err := g.find(inside[0])
	if err != nil {
		return nil, err
	}
	descriptors := make([]uintptr, len(files))
	for i, f := range files {
		descriptors[i] = f.Fd()
	}
	return g.children.start(program, inside, &syscall.ProcAttr{
		Dir: g.home(), Env: g.environ(), Files: descriptors, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: terminal},
	})
}

// find looks for a program in the guest's PATH.
func (g *guest) find(name string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return name, nil
	}
	for _, dir := range []string{g.bin(), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: command not found", name)
}

// answer serves `exec` until the process ends. Before the guest is up, and when its image has no agent, a connection is
// closed without a word.
func (g *guest) answer(socket *os.File) {
	listener, err := net.FileListener(socket)
	if err != nil {
		return // there is no socket, as the script wanted
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		select {
		case <-g.booted:
		default:
			conn.Close()
			continue
		}
		if g.Image.NoGuestAgent {
			conn.Close()
			continue
		}
		go func() {
			defer conn.Close()
			g.serve(conn)
		}()
	}
}

// reaper starts processes and waits for all of this process's children, those that it has adopted included.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
	ending  bool
	started chan struct{} // has an element when there may be children again
	idle    chan struct{} // has an element when there was no child once
	gone    chan struct{} // closed when the last is gone and there will be no more
}

func newReaper() *reaper {
	r := &reaper{
		waiting: map[int]chan syscall.WaitStatus{},
		started: make(chan struct{}, 1), idle: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	go r.reap()
	return r
}

var errGuestEnding = errors.New("the guest is shutting down")

// started is a process that the reaper waits for.
type started struct {
	pid   int
	ended chan syscall.WaitStatus
}

func (r *reaper) start(program string, argv []string, attr *syscall.ProcAttr) (*started, error) {
	r.mu.Lock() // until the child is known, its end may not be reported
	defer r.mu.Unlock()
	if r.ending {
		return nil, errGuestEnding
	}
	pid, err := syscall.ForkExec(program, argv, attr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	s := &started{pid: pid, ended: make(chan syscall.WaitStatus, 1)}
	r.waiting[pid] = s.ended
	r.wake()
	return s, nil
}

// kill ends the one process, if it still runs.
func (r *reaper) kill(s *started) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, runs := r.waiting[s.pid]; runs { // it is not reaped, so its PID is not reused
		_ = syscall.Kill(s.pid, syscall.SIGKILL)
	}
}

func (r *reaper) wake() {
	select {
	case r.started <- struct{}{}:
	default:
	}
}

func (r *reaper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		r.mu.Lock()
		ending := r.ending
		if ended, known := r.waiting[pid]; known && err == nil {
			ended <- status
			delete(r.waiting, pid)
		}
		r.mu.Unlock()
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil && ending: // no child is left
			close(r.gone)
			return
		case err != nil:
			select {
			case r.idle <- struct{}{}:
			default:
			}
			<-r.started
		case ending:
			killChildren(r.pids()) // those of the one that has just gone are ours now
		}
	}
}

func (r *reaper) pids() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pids []int
	for pid := range r.waiting {
		pids = append(pids, pid)
	}
	return pids
}

// finish asks every process that was started here, and those in its group, to end; what is left after the grace, or when it
// is cut short, is ended.
func (r *reaper) finish(grace time.Duration, cut <-chan struct{}) {
	select {
	case <-r.idle: // of an earlier time
	default:
	}
	if pids := r.pids(); len(pids) > 0 {
		for _, pid := range pids {
			_ = syscall.Kill(-pid, syscall.SIGTERM) // it may have ended this instant
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-r.idle:
		case <-timer.C:
		case <-cut:
		}
	}
	r.end()
}

// end kills everything, and returns when it is gone.
func (r *reaper) end() {
	r.mu.Lock()
	r.ending = true
	r.mu.Unlock()
	killChildren(r.pids())
	r.wake()
	<-r.gone
}
