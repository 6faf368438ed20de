package dockerfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/dockerfile/builder"
	"github.com/bullpen-ci/bullpen/internal/lib/httpserver"
)

const (
	// guardPatience bounds the time from runc's start to the guard's socket.
	guardPatience = time.Minute
	// lookEvery is how often the socket is looked for.
	lookEvery = 10 * time.Millisecond
	// endPatience bounds the time that a container may take to end, which is asked every endEvery.
	endPatience = 20 * time.Second
	endEvery    = 100 * time.Millisecond
)

// Serve makes containers until ctx or the listener ends. Containers outlive it.
func Serve(ctx context.Context, listener net.Listener, o Options) error {
	if o.Root == "" || o.BuildKit == "" || o.Runc == "" {
		return errors.New("making containers of actions: a directory, the socket of BuildKit and runc are required")
	}
	s := &server{o: o.withDefaults(), turn: make(chan struct{}, 1)}
	s.clean()
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+builder.Path, s.serve)
	server := httpserver.New(mux)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("making containers of actions: %w", err)
	}
	return nil
}

type server struct {
	o    Options
	turn chan struct{} // one build at a time: a job's steps follow one another
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	var request builder.Request
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, builder.MaxRequest))
	body.DisallowUnknownFields()
	if err := body.Decode(&request); err != nil {
		http.Error(w, "the request is invalid", http.StatusBadRequest)
		return
	}
	out := &events{to: json.NewEncoder(w), flush: http.NewResponseController(w).Flush}
	built, running, err := s.make(r.Context(), request, out)
	failure := new(builder.Failure)
	switch {
	case err == nil:
		if out.send(builder.Event{Built: &built}) != nil || r.Context().Err() != nil {
			s.destroy(running) // its hook is gone
		}
	case errors.As(err, &failure):
		_ = out.send(builder.Event{Failure: failure.Text})
	case r.Context().Err() != nil: // the hook is gone
	default:
		s.o.Log.Error("an action's container cannot be made", "container", request.Container, "error", err)
		_ = out.send(builder.Event{Failure: err.Error()})
	}
}

// events is the response. Write is the build's output.
type events struct {
	mu    sync.Mutex
	to    *json.Encoder
	flush func() error
}

func (e *events) send(one builder.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.to.Encode(one); err != nil {
		return err
	}
	return e.flush()
}

func (e *events) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := e.send(builder.Event{Output: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *server) make(ctx context.Context, request builder.Request, output io.Writer) (builder.Built, *running, error) {
	if err := request.Check(); err != nil {
		return builder.Built{}, nil, err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return builder.Built{}, nil, ctx.Err()
	}
	dir := filepath.Join(s.o.Root, request.Container)
	if err := makeDirectory(s.o.Root, dir); err != nil {
		return builder.Built{}, nil, err
	}
	handedOver := false
	defer func() {
		if !handedOver {
			s.remove(dir)
		}
	}()
	layout := filepath.Join(dir, "image")
	built, err := build(ctx, s.o.Buildctl, s.o.BuildKit, request, layout, output)
	if err != nil {
		return builder.Built{}, nil, err
	}
	if err := s.unpack(ctx, filepath.Join(dir, bundleRoot), built.layers); err != nil {
		return builder.Built{}, nil, err
	}
	s.remove(layout)
	if err := writeBundle(dir, request.Container); err != nil {
		return builder.Built{}, nil, fmt.Errorf("describing the container: %w", err)
	}
	handedOver = true // run removes the directory
	container, err := s.run(ctx, dir, request.Container)
	if err != nil {
		return builder.Built{}, nil, err
	}
	return builder.Built{Image: built.digest, Config: built.config}, container, nil
}

// makeDirectory makes that of one container. Volumes may have a group that is handed down, which must not get into an image.
func makeDirectory(root, dir string) error {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return fmt.Errorf("making a directory for the container: %w", err)
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return builder.Failf("there is a container %s already", filepath.Base(dir))
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, bundleRoot), 0o755) //nolint:gosec // the root of a container
	}
	for _, path := range []string{dir, filepath.Join(dir, bundleRoot)} {
		if err == nil {
			err = os.Chown(path, os.Geteuid(), os.Getegid())
		}
		if err == nil {
			err = os.Chmod(path, 0o755) //nolint:gosec // it is below one of mode 0700, and users of the image are others
		}
	}
	if err != nil {
		return fmt.Errorf("making a directory for the container: %w", err)
	}
	return nil
}

// remove gives the disk back.
func (s *server) remove(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		s.o.Log.Warn("removing a directory of an action", "directory", dir, "error", err)
	}
}

// unpack runs Unpack, in a process of its own.
func (s *server) unpack(ctx context.Context, dir string, layers []string) error {
	command := exec.CommandContext(ctx, s.o.Self, append([]string{"dockerfile", "--unpack", dir, "--"}, layers...)...)
	said := &tail{}
	command.Stdout, command.Stderr = said, said
	err := command.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return builder.Failf("%s", said.or(err.Error()))
}

// running is a container.
type running struct {
	name    string
	process *os.Process   // runc's, which ends with the container
	ended   chan struct{} // closed when it has ended; how is in exit
	exit    error
}

// run starts the container, and returns when its guard listens. The container goes on when ctx ends: the hook has its guard end it.
func (s *server) run(ctx context.Context, dir, name string) (*running, error) {
	command := exec.CommandContext(context.WithoutCancel(ctx), s.o.Runc, "--root", s.runcRoot(), "run", "--bundle", dir, name)
	said := &tail{}
	command.Stdout, command.Stderr = said, said
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what is left of this process's group is killed with it (package buildkit)
	if err := command.Start(); err != nil {
		s.remove(dir)
		return nil, builder.Failf("runc can't be started: %v", err)
	}
	container := &running{name: name, process: command.Process, ended: make(chan struct{})}
	go func() { // ends with the container, which ends with the runner at the latest (JOB-2)
		container.exit = command.Wait()
		s.remove(dir)
		close(container.ended)
	}()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	limit := time.NewTimer(s.o.GuardPatience)
	defer limit.Stop()
	socket := filepath.Join(s.o.JobDir, name, filepath.Base(jobcontainer.Socket(name)))
	for {
		select {
		case <-container.ended:
			return nil, builder.Failf("its container has ended: %s", said.or(fmt.Sprint(container.exit)))
		case <-limit.C:
			s.destroy(container)
			return nil, builder.Failf("its container did not start within %s: %s", s.o.GuardPatience, said.or("no message"))
		case <-ctx.Done():
			s.destroy(container)
			return nil, ctx.Err()
		case <-look.C:
			if _, err := os.Stat(socket); err == nil {
				return container, nil
			}
		}
	}
}

// runcRoot is where runc has its states.
func (s *server) runcRoot() string { return filepath.Join(s.o.Root, ".runc") }

// destroy ends a container whose hook is gone, or whose guard has not started. runc may have no state of the container yet, and then "delete" does
// nothing. So it is repeated until the container has ended, and after EndPatience runc itself is killed.
func (s *server) destroy(c *running) {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.EndPatience)
	defer cancel()
	again := time.NewTicker(endEvery)
	defer again.Stop()
	for {
		output, err := exec.CommandContext(ctx, s.o.Runc, "--root", s.runcRoot(), "delete", "--force", c.name).CombinedOutput()
		select {
		case <-c.ended:
			return
		case <-again.C:
		case <-ctx.Done():
			s.o.Log.Warn("an action's container does not end, and is given up", "container", c.name, "error", err, "output", strings.TrimSpace(string(output)))
			_ = c.process.Kill()
			return
		}
	}
}

// clean removes what a server before this one has left: it may have been killed, and its containers go on.
func (s *server) clean() {
	left, _ := os.ReadDir(s.o.Root) // there may be nothing
	for _, dir := range left {
		if _, err := os.Stat(filepath.Join(s.runcRoot(), dir.Name())); dir.Name() != filepath.Base(s.runcRoot()) && errors.Is(err, fs.ErrNotExist) {
			s.remove(filepath.Join(s.o.Root, dir.Name()))
		}
	}
}

func (o Options) withDefaults() Options {
	if o.Self == "" {
		o.Self = "/proc/self/exe"
	}
	if o.Buildctl == "" {
		o.Buildctl = "buildctl"
	}
	if o.JobDir == "" {
		o.JobDir = jobcontainer.Dir
	}
	if o.GuardPatience == 0 {
		o.GuardPatience = guardPatience
	}
	if o.EndPatience == 0 {
		o.EndPatience = endPatience
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
