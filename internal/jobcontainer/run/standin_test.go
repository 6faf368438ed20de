package run

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
)

// standIn is a pod in memory: the broker, and the guards of its containers.
type standIn struct {
	t        *testing.T
	mu       sync.Mutex
	guards   map[string]*guardStandIn
	failures map[string]letter.Failure
	deleted  chan struct{} // closed when the pod is being deleted
	log      bytes.Buffer
}

func newStandIn(t *testing.T) *standIn {
	return &standIn{t: t, deleted: make(chan struct{}), guards: map[string]*guardStandIn{}, failures: map[string]letter.Failure{}}
}

// call is a command of this pod.
func (s *standIn) call() *call {
	dir := s.t.TempDir()
	options, err := Options{
		Input: &bytes.Buffer{}, Stdout: s, Stderr: s, Pod: "runner-7", JobDir: dir, GitHubDir: dir, PrivateDir: dir, Broker: s,
		Guard: func(name string) Guard { return s.guard(name) },
	}.withDefaults()
	require.NoError(s.t, err)
	return &call{Options: options}
}

// guard is that of a container, which is strict: what a test has not prepared fails.
func (s *standIn) guard(name string) *guardStandIn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guards[name] == nil {
		s.guards[name] = &guardStandIn{name: name, ready: make(chan struct{})}
	}
	return s.guards[name]
}

// Write is the step's log.
func (s *standIn) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *standIn) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// Ask is not for these tests.
func (s *standIn) Ask(context.Context, jobcontainer.Request) (jobcontainer.Response, error) {
	return jobcontainer.Response{}, fmt.Errorf("not expected")
}

// FailureOf returns what a test has set.
func (s *standIn) FailureOf(container string) (letter.Failure, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failure, known := s.failures[container]
	return failure, known
}

// Deleted is so once a test has closed the channel.
func (s *standIn) Deleted() (string, bool) {
	select {
	case <-s.deleted:
		return "The pod is being deleted.", true
	default:
		return "", false
	}
}

func (s *standIn) fail(container, text string, final bool) {
	s.tell(letter.Failure{Container: container, Text: text, Final: final})
}

func (s *standIn) tell(failure letter.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[failure.Container] = failure
}

// guardStandIn is one guard.
type guardStandIn struct {
	name    string
	ready   chan struct{} // closed when it answers
	health  func(check int) (client.HealthResult, error)
	status  func() (client.Status, error)
	run     func(ctx context.Context, signals <-chan syscall.Signal) (client.Exit, error)
	output  string
	hosts   error
	linked  bool            // Links are expected
	process *client.Process // gets what is executed
	named   []client.HostEntry

	mu     sync.Mutex
	checks int
	ends   []time.Duration
}

func (g *guardStandIn) unexpected(what string) error {
	return fmt.Errorf("%s: %s was not expected", g.name, what)
}

func (g *guardStandIn) Wait(ctx context.Context) error {
	select {
	case <-g.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting: %w", ctx.Err())
	}
}

func (g *guardStandIn) Release(context.Context, string) (client.Release, error) {
	return client.Release{Root: true}, nil
}

func (g *guardStandIn) Links(context.Context, []client.Link) error {
	if !g.linked {
		return g.unexpected("Links")
	}
	return nil
}

func (g *guardStandIn) Hosts(_ context.Context, entries []client.HostEntry) error {
	if g.hosts == nil {
		g.named = append(g.named, entries...)
	}
	return g.hosts
}

func (g *guardStandIn) Relay(context.Context, client.Relay) error { return g.unexpected("Relay") }

func (g *guardStandIn) Start(context.Context, client.Process, string) (client.Status, error) {
	return client.Status{}, g.unexpected("Start")
}

func (g *guardStandIn) Status(context.Context) (client.Status, error) {
	if g.status == nil {
		return client.Status{State: "running"}, nil
	}
	return g.status()
}

func (g *guardStandIn) Health(ctx context.Context, _ client.Process, _ time.Duration) (client.HealthResult, error) {
	g.mu.Lock()
	check := g.checks
	g.checks++
	g.mu.Unlock()
	if g.health == nil {
		return client.HealthResult{}, g.unexpected("Health")
	}
	return g.health(check)
}

func (g *guardStandIn) Exec(ctx context.Context, process client.Process, streams client.Streams) (client.Exit, error) {
	if g.run == nil {
		return client.Exit{}, g.unexpected("Exec")
	}
	if g.process != nil {
		*g.process = process
	}
	return g.run(ctx, streams.Signals)
}

func (g *guardStandIn) Logs(_ context.Context, stdout, _ io.Writer) error {
	_, err := io.WriteString(stdout, g.output)
	return err
}

func (g *guardStandIn) End(ctx context.Context, grace time.Duration) (client.Status, error) {
	if ctx.Err() != nil {
		return client.Status{}, ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends = append(g.ends, grace)
	return client.Status{}, nil
}
