//go:build unix

package mac

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// launchd is the process that starts the Mac's jobs, and models its login window.
type launchd struct {
	root   Root
	config Machine

	mu       sync.Mutex
	jobs     map[string]*job
	pids     map[int]func(exit int) // what waits for the end of a process
	disabled map[string]bool
	stopping bool
	logins   int // counts starts of the login window, so that a late login of an earlier one does nothing
}

// job is one that is loaded.
type job struct {
	jobPlist
	path     string
	pid      int
	runs     int
	lastExit int
	exited   bool // ever
	started  time.Time
	timer    *time.Timer
	unloaded bool
	kept     bool // background-task management lets it be kept alive
	gone     chan struct{}
}

// registrations remember how often a job was loaded without a change.
type registrations map[string]struct {
	Plist string `json:"plist"`
	Count int    `json:"count"`
}

const (
	registrationsFile = "registrations.json"
	disabledFile      = "disabled.json"
	addressFile       = "launchd-address"
	// unchangedLimit is how often the same job may be registered again, before background-task management stops keeping it alive
	// (likely: that it does is known, not after how many times).
	unchangedLimit = 3
)

// runLaunchd boots the Mac, and serves launchctl until its standard input ends, which its parent holds.
func runLaunchd(ctx context.Context, c *call) error {
	adoptOrphans()
	dir, err := os.MkdirTemp("", "devmac") // a short path, as sockets need
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(dir, "launchd"))
	if err != nil {
		return err
	}
	d := &launchd{root: c.root, config: c.config, jobs: map[string]*job{}, pids: map[int]func(int){}, disabled: map[string]bool{}}
	if err := c.root.read(disabledFile, &d.disabled); err != nil {
		return err
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			d.collect()
		}
	}()
	if err := d.boot(); err != nil {
		return err
	}
	if err := os.WriteFile(c.root.state(addressFile), []byte(listener.Addr().String()), 0o600); err != nil {
		return err
	}
	go d.serve(listener)
	fmt.Fprintln(c.Stdout, "booted")
	_, _ = io.Copy(io.Discard, c.Stdin) // its end is all that matters
	_ = listener.Close()
	d.shutdown()
	os.Remove(c.root.state(addressFile))
	return nil
}

// collect notes which children have ended, those that it has adopted among them.
func (d *launchd) collect() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		exit := status.ExitStatus()
		if status.Signaled() {
			exit = 128 + int(status.Signal())
		}
		d.mu.Lock()
		ended := d.pids[pid]
		delete(d.pids, pid)
		d.mu.Unlock()
		if ended != nil {
			ended(exit)
		}
	}
}

// boot is what precedes a login.
func (d *launchd) boot() error {
	if err := d.bootFilter(); err != nil {
		return err
	}
	if err := update(d.root, hostFile, func(h *host) error { h.Sysctl = nil; return nil }); err != nil { // the kernel's variables are not kept
		return err
	}
	if err := d.root.write(sessionFile, sessionState{}); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.root.Path("/Library/LaunchDaemons"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".plist") {
			continue
		}
		// A job that cannot be loaded is skipped without an error.
		_ = d.load("/Library/LaunchDaemons/"+e.Name(), false)
	}
	return d.startLoginwindow(true)
}

func (d *launchd) shutdown() {
	d.mu.Lock()
	d.stopping = true
	var gone []chan struct{}
	for _, j := range d.jobs {
		gone = append(gone, d.stop(j, syscall.SIGTERM))
	}
	d.mu.Unlock()
	patience, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, ended := range gone {
		select {
		case <-ended:
		case <-patience.Done():
		}
	}
	killChildren()
}

// load reads a job and registers it. The caller reports whether background-task management counts it.
func (d *launchd) load(path string, counted bool) error {
	parsed, data, err := d.root.readJob(path)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.jobs[parsed.Label] != nil {
		return errLoaded
	}
	if d.disabled[parsed.Label] || parsed.Disabled {
		return errDisabled
	}
	j := &job{jobPlist: parsed, path: path, kept: true}
	if counted {
		if j.kept, err = d.register(parsed.Label, string(data)); err != nil {
			return err
		}
		if !j.kept {
			d.disabled[parsed.Label] = true
			if err := d.root.write(disabledFile, d.disabled); err != nil {
				return err
			}
		}
	}
	d.jobs[parsed.Label] = j
	if parsed.RunAtLoad || parsed.keepAlive(0) && parsed.keepAlive(1) {
		d.start(j)
	}
	return nil
}

var (
	errLoaded   = errors.New("the job is loaded already")
	errDisabled = errors.New("the job is disabled")
)

// register counts registrations of the same job without a change, and reports whether it may still be kept alive.
func (d *launchd) register(label, plist string) (bool, error) {
	kept := true
	err := update(d.root, registrationsFile, func(all *registrations) error {
		if *all == nil {
			*all = registrations{}
		}
		entry := (*all)[label]
		if entry.Plist != plist {
			entry.Plist, entry.Count = plist, 0
		} else {
			entry.Count++
		}
		(*all)[label] = entry
		kept = entry.Count < unchangedLimit
		return nil
	})
	return kept, err
}

// start starts a job's process. The caller holds the lock.
func (d *launchd) start(j *job) {
	if j.pid != 0 || j.unloaded || d.stopping {
		return
	}
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
	j.runs++
	j.started = time.Now()
	j.gone = make(chan struct{})
	program, args := d.root.arguments(j.jobPlist)
	user := j.UserName
	if user == "" {
		user = "root"
	}
	cmd := &exec.Cmd{Path: program, Args: args, Env: d.root.environment(user, j.EnvironmentVariables), SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	cmd.Dir = d.root.Path("/")
	if j.WorkingDirectory != "" {
		cmd.Dir = d.root.Path(j.WorkingDirectory)
	}
	files, err := d.outputs(j, cmd)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err == nil {
		if _, known := d.config.user(user); !known {
			err = fmt.Errorf("there is no user %s", user)
		} else {
			err = cmd.Start()
		}
	}
	if err != nil { // EX_CONFIG, and again later
		go d.ended(j, 78)
		j.pid = -1
		return
	}
	j.pid = cmd.Process.Pid
	d.pids[j.pid] = func(exit int) { d.ended(j, exit) }
}

func (d *launchd) outputs(j *job, cmd *exec.Cmd) ([]*os.File, error) {
	var files []*os.File
	for path, into := range map[string]*io.Writer{j.StandardOutPath: &cmd.Stdout, j.StandardErrorPath: &cmd.Stderr} {
		if path == "" {
			continue
		}
		f, err := os.OpenFile(d.root.Path(path), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return files, err
		}
		files = append(files, f)
		*into = f
	}
	if j.StandardOutPath == j.StandardErrorPath && len(files) > 0 {
		cmd.Stdout, cmd.Stderr = files[0], files[0]
	}
	return files, nil
}

// ended records that a job's process has exited.
func (d *launchd) ended(j *job, exit int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j.pid > 0 && !j.AbandonProcessGroup {
		_ = syscall.Kill(-j.pid, syscall.SIGKILL) // what it left behind, if anything
	}
	j.pid, j.lastExit, j.exited = 0, exit, true
	close(j.gone)
	if j.unloaded || d.stopping || !j.kept || !j.keepAlive(exit) {
		return
	}
	// Started less than ThrottleInterval ago, it has to wait for the rest of that.
	j.timer = time.AfterFunc(max(time.Until(j.started.Add(j.throttle())), 0), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.start(j)
	})
}

// stop ends a job's process, at first by a signal that it can handle. The channel is closed when it has exited. The caller
// holds the lock.
func (d *launchd) stop(j *job, with syscall.Signal) chan struct{} {
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
	if j.pid <= 0 {
		gone := make(chan struct{})
		close(gone)
		return gone
	}
	pid, gone := j.pid, j.gone
	_ = syscall.Kill(pid, with) // it may have exited this instant
	patience := 20 * time.Second
	if j.ExitTimeOut > 0 {
		patience = time.Duration(j.ExitTimeOut) * time.Second
	}
	time.AfterFunc(patience, func() {
		select {
		case <-gone:
		default:
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return gone
}

// request is a call of launchctl, or of what else changes the session.
type request struct {
	Args []string `json:"args"`
	User string   `json:"user"`
}

type response struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Exit   int    `json:"exit"`
}

func (d *launchd) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var q request
			if err := json.NewDecoder(conn).Decode(&q); err != nil {
				return
			}
			_ = json.NewEncoder(conn).Encode(d.answer(q)) // the client may have exited
		}()
	}
}

// ask sends a request to the running launchd.
func (r Root) ask(ctx context.Context, q request) (response, error) {
	address, err := os.ReadFile(r.state(addressFile))
	if err != nil {
		return response{}, errors.New("the model Mac is not booted")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", string(address))
	if err != nil {
		return response{}, fmt.Errorf("the model Mac is not booted: %w", err)
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return response{}, err
	}
	var p response
	if err := json.NewDecoder(conn).Decode(&p); err != nil {
		return p, fmt.Errorf("launchd did not answer: %w", err)
	}
	return p, nil
}

func (d *launchd) labels() []string {
	var labels []string
	for label := range d.jobs {
		labels = append(labels, label)
	}
	slices.Sort(labels)
	return labels
}
