package synthetic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// Machine is where synthetic containers live: it outlives the sandboxes that are opened over it, as a real machine outlives
// its node agent. The zero value is not usable; use NewMachine.
type Machine struct {
	clock clock.WithDelayedExecution

	mu       sync.Mutex
	owned    map[string]*pod
	programs map[string]Program
	starts   int
	running  sync.WaitGroup // programs
}

// Program is what the containers of one name do when a timetable is not enough: code of this process in the place of a
// process of its own. Thousands of pods that really speak to the server cost a goroutine each.
type Program struct {
	// Run is the container's main process: it returns the exit code. terminate is closed when it is asked to end, for
	// which it may take its time; ctx ends when it is killed, and then it must return at once.
	Run func(ctx context.Context, terminate <-chan struct{}, pod *corev1.Pod, container sandbox.Container) int32
	// Exec answers sandbox.Exec; nil leaves that to the annotation.
	Exec func(ctx context.Context, container sandbox.Container, command []string) (int, error)
}

// The signals, as exit codes count them.
const (
	sigkill = 9
	sigterm = 15
)

type pod struct {
	ref        sandbox.PodRef
	terms      sandbox.Terms
	foreign    bool // of another owner, without our mark
	containers map[string]*container
}

type container struct {
	behaviour behaviour
	spec      sandbox.Container
	state     sandbox.ContainerState
	ended     chan struct{}
	timer     clock.Timer
	run       *execution // of a program; nil without one
	log       log
}

// firstAlive is a container that has not exited; nil when there is none.
func (p *pod) firstAlive() *container {
	for _, c := range p.containers {
		if c.state.Exit == nil {
			return c
		}
	}
	return nil
}

// execution is a program under way. The machine's lock guards it.
type execution struct {
	program   Program
	signalled int32 // the last signal it was sent
	terminate chan struct{}
	kill      context.CancelFunc
}

func (e *execution) signal(number int32) {
	if e.signalled == 0 {
		close(e.terminate)
	}
	if e.signalled != sigkill {
		e.signalled = number
	}
	if number == sigkill {
		e.kill()
	}
}

// NewMachine returns an empty machine. A nil clock is the real one.
func NewMachine(c clock.WithDelayedExecution) *Machine {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Machine{clock: c, owned: map[string]*pod{}, programs: map[string]Program{}}
}

// Install makes every container of that name that is started from now on run the program.
func (m *Machine) Install(container string, p Program) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.programs[container] = p
}

// Off kills every program and returns when all have ended, as when the machine's power goes.
func (m *Machine) Off() {
	m.mu.Lock()
	for _, p := range m.owned {
		for _, c := range p.containers {
			if c.run != nil {
				c.run.signal(sigkill)
			}
		}
	}
	m.mu.Unlock()
	m.running.Wait()
}

// Starts is how many containers were started in the life of the machine.
func (m *Machine) Starts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts
}

// Exit ends a running container as if it had ended by itself. sandbox.ErrNotFound when there is none of that name.
func (m *Machine) Exit(podUID, name string, code int32) error {
	return m.end(podUID, name, sandbox.Exit{Code: code})
}

// Lose ends a container unseen, as a power failure does.
func (m *Machine) Lose(podUID, name string) error {
	return m.end(podUID, name, sandbox.Exit{
		Code: sandbox.UnknownExitCode, Unknown: true, Reason: "ContainerStatusUnknown", Message: "the container's exit was not observed",
	})
}

// Intrude puts a pod on the machine that no sandbox of ours made.
func (m *Machine) Intrude(ref sandbox.PodRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owned[ref.UID] = &pod{ref: ref, foreign: true, containers: map[string]*container{}}
}

// Has reports whether anything of the pod, ours or not, is on the machine.
func (m *Machine) Has(podUID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owned[podUID] != nil
}

func (m *Machine) end(podUID, name string, exit sandbox.Exit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.container(podUID, name)
	if err != nil {
		return err
	}
	m.finish(c, exit)
	if c.run != nil {
		c.run.kill() // a container that is reported as ended must have ended: nothing would stop it later
	}
	return nil
}

// finish ends a container once; the caller holds m.mu.
func (m *Machine) finish(c *container, exit sandbox.Exit) {
	if c.state.Exit != nil {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	exit.StartedAt, exit.FinishedAt = c.state.StartedAt, m.clock.Now()
	c.state.Exit = &exit
	close(c.ended)
}

// execute runs a program until it returns; the caller holds m.mu.
func (m *Machine) execute(c *container, pod *corev1.Pod, program Program) {
	ctx, kill := context.WithCancel(context.Background()) // no agent's: what runs outlives it (NODE-3)
	c.run = &execution{program: program, terminate: make(chan struct{}), kill: kill}
	terminate := c.run.terminate
	m.running.Go(func() {
		defer kill()
		code := program.Run(ctx, terminate, pod, c.spec)
		m.mu.Lock()
		defer m.mu.Unlock()
		exit := sandbox.Exit{Code: code}
		if c.run.signalled == sigkill || code == 128+c.run.signalled && code > 128 {
			exit = sandbox.Exit{Code: 128 + c.run.signalled, Signal: c.run.signalled}
		}
		m.finish(c, exit)
	})
}

func (m *Machine) timeUp(c *container) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finish(c, sandbox.Exit{Code: c.behaviour.exit})
}

// pod finds a pod of ours; the caller holds m.mu.
func (m *Machine) pod(uid string) (*pod, error) {
	p := m.owned[uid]
	if p == nil || p.foreign {
		return nil, sandbox.ErrNotFound
	}
	return p, nil
}

func (m *Machine) container(uid, name string) (*container, error) {
	p, err := m.pod(uid)
	if err != nil {
		return nil, err
	}
	c := p.containers[name]
	if c == nil {
		return nil, sandbox.ErrNotFound
	}
	return c, nil
}

// Sandbox implements sandbox.Sandbox on a Machine.
type Sandbox struct{ m *Machine }

var _ sandbox.Sandbox = (*Sandbox)(nil)

// New opens a sandbox over the machine.
func New(m *Machine) *Sandbox { return &Sandbox{m: m} }

// Admit refuses annotations that cannot be read.
func (s *Sandbox) Admit(pod *corev1.Pod) error {
	if _, err := prepareTime(pod); err != nil {
		return err
	}
	for _, c := range append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
		if _, err := behaviourOf(pod, c.Name); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for d, or until ctx is done.
func (m *Machine) pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	done := make(chan struct{})
	if d != never {
		timer := m.clock.AfterFunc(d, func() { close(done) })
		defer timer.Stop()
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-done:
		return nil
	}
}

// Prepare implements sandbox.Sandbox.
func (s *Sandbox) Prepare(ctx context.Context, p *corev1.Pod) error {
	wait, err := prepareTime(p)
	if err != nil {
		return err
	}
	if err := s.m.pause(ctx, wait); err != nil {
		return err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	uid := string(p.UID)
	if s.m.owned[uid] == nil {
		s.m.owned[uid] = &pod{
			ref:        sandbox.PodRef{UID: uid, Namespace: p.Namespace, Name: p.Name},
			terms:      sandbox.TermsOf(p),
			containers: map[string]*container{},
		}
	}
	return nil
}

// Start implements sandbox.Sandbox.
func (s *Sandbox) Start(ctx context.Context, p *corev1.Pod, spec sandbox.Container) error {
	b, err := behaviourOf(p, spec.Name)
	if err != nil {
		return err
	}
	if err := s.m.pause(ctx, b.start); err != nil {
		return err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	owner, err := s.m.pod(string(p.UID))
	if err != nil {
		return err
	}
	if owner.containers[spec.Name] != nil {
		return nil
	}
	c := &container{behaviour: b, spec: spec, ended: make(chan struct{}), state: sandbox.ContainerState{
		Name: spec.Name, ID: fmt.Sprintf("synthetic://%s/%s", p.UID, spec.Name), StartedAt: s.m.clock.Now(),
	}}
	owner.containers[spec.Name] = c
	c.log.write(c.state.StartedAt, b.log)
	s.m.starts++
	if program := s.m.programs[spec.Name]; program.Run != nil {
		s.m.execute(c, p, program)
		return nil
	}
	if b.after != never {
		// A fake clock calls with its own lock held, and the end reads that clock.
		c.timer = s.m.clock.AfterFunc(b.after, func() { go s.m.timeUp(c) })
	}
	return nil
}

// Inspect implements sandbox.Sandbox.
func (s *Sandbox) Inspect(_ context.Context, podUID string) (sandbox.PodState, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	p, err := s.m.pod(podUID)
	if err != nil {
		return sandbox.PodState{}, err
	}
	state := sandbox.PodState{PodRef: p.ref, Terms: p.terms}
	for _, c := range p.containers {
		state.Containers = append(state.Containers, c.state)
	}
	slices.SortFunc(state.Containers, func(a, b sandbox.ContainerState) int { return cmp.Compare(a.Name, b.Name) })
	return state, nil
}

// Wait implements sandbox.Sandbox.
func (s *Sandbox) Wait(ctx context.Context, podUID, name string) (sandbox.Exit, error) {
	s.m.mu.Lock()
	c, err := s.m.container(podUID, name)
	s.m.mu.Unlock()
	if err != nil {
		return sandbox.Exit{}, err
	}
	select {
	case <-ctx.Done():
		return sandbox.Exit{}, context.Cause(ctx)
	case <-c.ended:
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return *c.state.Exit, nil
}

// Signal implements sandbox.Sandbox.
func (s *Sandbox) Signal(_ context.Context, podUID, name string, signal sandbox.Signal) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	c, err := s.m.container(podUID, name)
	if err != nil {
		return err
	}
	number := int32(sigterm)
	if signal == sandbox.Kill {
		number = sigkill
	}
	if c.run != nil {
		c.run.signal(number)
		return nil
	}
	if number == sigterm && c.behaviour.ignoreTerminate {
		return nil
	}
	s.m.finish(c, sandbox.Exit{Code: 128 + number, Signal: number})
	return nil
}

// Exec implements sandbox.Sandbox. Without streams the annotation answers, or the program; with them a Script is run.
func (s *Sandbox) Exec(ctx context.Context, podUID, name string, command []string, streams sandbox.Streams) (int, error) {
	s.m.mu.Lock()
	c, err := s.m.container(podUID, name)
	if err == nil && c.state.Exit != nil {
		err = fmt.Errorf("running a command in container %s: %w", name, sandbox.ErrNotRunning)
	}
	if err != nil {
		s.m.mu.Unlock()
		return 0, err
	}
	code, run, spec := c.behaviour.answer(s.m.clock.Since(c.state.StartedAt)), c.run, c.spec
	s.m.mu.Unlock()
	switch {
	case streams.In != nil || streams.Out != nil || streams.Err != nil || streams.TTY:
		return script(ctx, c.ended, command, streams)
	case run != nil && run.program.Exec != nil:
		return run.program.Exec(ctx, spec, command)
	}
	return code, nil
}

// Remove implements sandbox.Sandbox.
func (s *Sandbox) Remove(ctx context.Context, podUID string) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	p, err := s.m.pod(podUID)
	if err != nil {
		return nil // ErrNotFound, the only error there is: nothing to remove
	}
	for c := p.firstAlive(); c != nil; c = p.firstAlive() {
		if c.run == nil {
			s.m.finish(c, sandbox.Exit{Code: sandbox.UnknownExitCode, Signal: sigkill})
			continue
		}
		c.run.signal(sigkill)
		s.m.mu.Unlock()
		select {
		case <-c.ended: // NODE-2
		case <-ctx.Done():
			err = fmt.Errorf("waiting for the end of container %s: %w", c.spec.Name, context.Cause(ctx))
		}
		s.m.mu.Lock()
		if err != nil {
			return err
		}
	}
	delete(s.m.owned, podUID)
	return nil
}

// List implements sandbox.Sandbox.
func (s *Sandbox) List(context.Context) ([]sandbox.PodRef, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	var refs []sandbox.PodRef
	for _, p := range s.m.owned {
		if !p.foreign {
			refs = append(refs, p.ref)
		}
	}
	slices.SortFunc(refs, func(a, b sandbox.PodRef) int { return cmp.Compare(a.UID, b.UID) })
	return refs, nil
}
