// Command node-init is the first process of a node: PID 1 of its namespaces. It makes the node's own mounts, starts the programs that it is
// asked to start, reports how they ended, and reaps every process that lost its parent. When it ends, the kernel kills all that runs on the
// node.
//
// It is asked on file descriptor 3, a stream socket, one JSON value a line; see Request and Reply. When the other side closes, node-init ends.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Setup is what the node is made of. It is the first line on the socket.
type Setup struct {
	Hostname string
	// Tmpfs are directories that the node has to itself, empty. One that the machine lacks is left out.
	Tmpfs []string
	// Binds are directories of the machine and where the node finds them: below a tmpfs, whatever is mounted over the original.
	Binds []Bind
	// Files are bound over files of the kernel or of the machine, by path, with their content.
	Files map[string]string
	// Writes are written to files of the kernel that are the node's own, such as those of its network.
	Writes map[string]string
}

// Bind shows the directory From at To, which is made.
type Bind struct{ From, To string }

// Request starts a program (Start) or sends a signal to one (Signal).
type Request struct {
	Start  *Program `json:",omitempty"`
	Signal *Signal  `json:",omitempty"`
}

// Program is what to start. ID names it in signals and replies; it is not used twice.
type Program struct {
	ID   string
	Args []string // Args[0] is an absolute path
	Env  []string
	Log  string // the file that its output is appended to
}

// Signal for a program, or for its whole process group.
type Signal struct {
	ID     string
	Number int
	Group  bool
}

// Reply reports that the node is set up (neither ID nor Error), that a program has ended, or that a request has failed.
type Reply struct {
	ID      string `json:",omitempty"`
	PID     int    `json:",omitempty"` // as the node numbers it; with Started
	Started bool   `json:",omitempty"`
	Ended   string `json:",omitempty"` // "exit status 0", "signal: killed"
	Error   string `json:",omitempty"`
}

func main() {
	if err := run(os.NewFile(3, "control")); err != nil {
		fmt.Fprintln(os.Stderr, "node-init:", err)
		os.Exit(1)
	}
}

func run(control *os.File) error {
	if os.Getpid() != 1 {
		return errors.New("it has to be PID 1 of namespaces of its own; package realnode starts it")
	}
	in := json.NewDecoder(control)
	n := &node{out: json.NewEncoder(control), ids: map[int]string{}, pids: map[string]int{}}
	var setup Setup
	if err := in.Decode(&setup); err != nil {
		return fmt.Errorf("reading the setup: %w", err)
	}
	if err := setup.apply(); err != nil {
		n.reply(Reply{Error: err.Error()})
		return err
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			n.reap()
		}
	}()
	n.reply(Reply{})
	for {
		var request Request
		if err := in.Decode(&request); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading a request: %w", err)
		}
		n.handle(request)
	}
}

// node is the programs that run. A program's end is reported after its start, for both hold the lock.
type node struct {
	mu   sync.Mutex
	out  *json.Encoder
	ids  map[int]string
	pids map[string]int
}

func (n *node) reply(r Reply) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.out.Encode(r) // without the other side this process ends
}

func (n *node) handle(request Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case request.Start != nil:
		p := request.Start
		pid, err := p.start()
		if err != nil {
			_ = n.out.Encode(Reply{ID: p.ID, Error: err.Error()})
			return
		}
		n.ids[pid], n.pids[p.ID] = p.ID, pid
		_ = n.out.Encode(Reply{ID: p.ID, PID: pid, Started: true})
	case request.Signal != nil:
		s := request.Signal
		pid, runs := n.pids[s.ID]
		if !runs {
			return // it has ended, and that has been reported
		}
		if s.Group {
			pid = -pid
		}
		if err := syscall.Kill(pid, syscall.Signal(s.Number)); err != nil && !errors.Is(err, syscall.ESRCH) {
			_ = n.out.Encode(Reply{ID: s.ID, Error: fmt.Sprintf("sending signal %d: %v", s.Number, err)})
		}
	}
}

func (p *Program) start() (int, error) {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close() // the program has a descriptor of its own
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(p.Args[0], p.Args, &syscall.ProcAttr{
		Dir: "/", Env: p.Env, Files: []uintptr{null.Fd(), log.Fd(), log.Fd()}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", p.Args[0], err)
	}
	return pid, nil
}

// reap waits for all that has ended, also for the orphans of containers.
func (n *node) reap() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		id, ours := n.ids[pid]
		if !ours {
			continue
		}
		delete(n.ids, pid)
		delete(n.pids, id)
		_ = n.out.Encode(Reply{ID: id, Ended: outcome(status)})
	}
}

func outcome(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal: " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

// apply makes the node's mounts. None of them is seen outside its namespace.
func (s *Setup) apply() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil { // containers with mount propagation need it
		return fmt.Errorf("sharing the mounts with containers: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := s.directories(); err != nil {
		return err
	}
	// A user namespace may mount /proc only where all of one is visible: one that nothing is bound over.
	const whole = "/run/proc"
	if err := os.Mkdir(whole, 0o555); err != nil {
		return fmt.Errorf("making %s: %w", whole, err)
	}
	if err := unix.Mount("proc", whole, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", whole, err)
	}
	for path, content := range s.Files {
		if err := bindFile(path, content); err != nil {
			return err
		}
	}
	for path, content := range s.Writes {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("setting %s: %w", path, err)
		}
	}
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	return nil
}

// directories opens what is bound before it may be hidden.
func (s *Setup) directories() error {
	opened := make([]*os.File, len(s.Binds))
	for i, bind := range s.Binds {
		dir, err := os.Open(bind.From)
		if err != nil {
			return err
		}
		defer dir.Close()
		opened[i] = dir
	}
	for _, dir := range s.Tmpfs {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("mounting a tmpfs at %s: %w", dir, err)
		}
	}
	for i, bind := range s.Binds {
		if err := os.MkdirAll(bind.To, 0o755); err != nil {
			return err
		}
		from := fmt.Sprintf("/proc/self/fd/%d", opened[i].Fd())
		if err := unix.Mount(from, bind.To, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("binding %s at %s: %w", bind.From, bind.To, err)
		}
	}
	return nil
}

// bindFile is for settings of the whole kernel: programs of the node read what they want to find, and what they write changes nothing of the
// machine.
func bindFile(path, content string) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil // a kernel without that setting
	}
	from := filepath.Join("/run/files", strings.ReplaceAll(strings.Trim(path, "/"), "/", "_"))
	if err := os.MkdirAll(filepath.Dir(from), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(from, []byte(content), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(from, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding a file over %s: %w", path, err)
	}
	return nil
}
