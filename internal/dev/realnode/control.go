package realnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// What is sent to node-init, and what it replies: the types of devcluster/node/init, which is a module of its own.
type (
	setup struct {
		Hostname string
		Tmpfs    []string
		Binds    []bind
		Files    map[string]string
		Writes   map[string]string
	}
	bind    struct{ From, To string }
	request struct {
		Start  *start       `json:",omitempty"`
		Signal *signalOrder `json:",omitempty"`
	}
	start struct {
		ID   string
		Args []string
		Env  []string
		Log  string
	}
	signalOrder struct {
		ID     string
		Number int
		Group  bool
	}
	reply struct {
		ID      string
		PID     int
		Started bool
		Ended   string
		Error   string
	}
)

// errNodeEnded reports that node-init has ended, and everything on the node with it.
var errNodeEnded = errors.New("the node has ended")

// control is the connection to node-init. Its methods may be called concurrently.
type control struct {
	conn net.Conn
	out  *json.Encoder

	mu      sync.Mutex
	runs    map[string]*run
	serial  int
	ended   chan struct{}
	started chan reply // of the setup
}

// run is one start of a program.
type run struct {
	id      string
	up      bool       // its process exists, or did; guarded by control's mutex
	pid     int        // as the node numbers it; so guarded, too
	started chan error // has room for the one answer
	done    chan struct{}
	outcome string // to be read after done
}

func (r *run) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func newControl(conn net.Conn) *control {
	c := &control{conn: conn, out: json.NewEncoder(conn), runs: map[string]*run{}, ended: make(chan struct{}), started: make(chan reply, 1)}
	go c.read()
	return c
}

// read is the one goroutine that receives. It ends with node-init.
func (c *control) read() {
	defer close(c.ended)
	in := json.NewDecoder(c.conn)
	for {
		var r reply
		if err := in.Decode(&r); err != nil {
			c.end()
			return
		}
		c.take(r)
	}
}

func (c *control) take(r reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.ID == "" {
		c.started <- r
		return
	}
	found := c.runs[r.ID]
	switch {
	case found == nil:
	case r.Started:
		found.up, found.pid = true, r.PID
		found.started <- nil
	case r.Ended != "":
		c.finish(found, r.Ended)
	case r.Error != "":
		if !found.up { // else it is of a signal, and the program runs on
			found.started <- errors.New(r.Error)
			c.finish(found, r.Error)
		}
	}
}

func (c *control) finish(r *run, outcome string) {
	r.outcome = outcome
	delete(c.runs, r.id)
	close(r.done)
}

func (c *control) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.runs {
		if !r.up {
			r.started <- errNodeEnded
		}
		c.finish(r, errNodeEnded.Error())
	}
}

// setUp sends the setup and waits until the node has it.
func (c *control) setUp(s setup) error {
	if err := c.send(s); err != nil {
		return err
	}
	select {
	case r := <-c.started:
		if r.Error != "" {
			return fmt.Errorf("setting up the node's namespaces: %s", r.Error)
		}
		return nil
	case <-c.ended:
		return errNodeEnded
	}
}

// send writes one line. Lines of several goroutines do not mix.
func (c *control) send(v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(v); err != nil {
		return fmt.Errorf("%w: %w", errNodeEnded, err)
	}
	return nil
}

// start starts a program and returns when its process exists.
func (c *control) start(name string, args, env []string, log string) (*run, error) {
	c.mu.Lock()
	c.serial++
	r := &run{id: fmt.Sprintf("%s-%d", name, c.serial), started: make(chan error, 1), done: make(chan struct{})}
	c.runs[r.id] = r
	c.mu.Unlock()
	if err := c.send(request{Start: &start{ID: r.id, Args: args, Env: env, Log: log}}); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	select {
	case err := <-r.started:
		if err != nil {
			return nil, fmt.Errorf("starting %s: %w", name, err)
		}
		return r, nil
	case <-c.ended:
		return nil, fmt.Errorf("starting %s: %w", name, errNodeEnded)
	}
}

func (c *control) pid(r *run) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.pid
}

func (c *control) signal(r *run, s syscall.Signal, group bool) error {
	return c.send(request{Signal: &signalOrder{ID: r.id, Number: int(s), Group: group}})
}
