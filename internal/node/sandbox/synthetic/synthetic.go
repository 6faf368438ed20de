package synthetic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// Machine is where synthetic containers live: it outlives the sandboxes that are opened over it, as a real machine outlives
// its node agent. The zero value is not usable; use NewMachine.
type Machine struct {
	clock clock.WithDelayedExecution

	mu     sync.Mutex
	owned  map[string]*pod
	starts int
}

type pod struct {
	ref        sandbox.PodRef
	foreign    bool // somebody else's, without our mark
	containers map[string]*container
}

type container struct {
	behaviour behaviour
	state     sandbox.ContainerState
	ended     chan struct{}
	timer     clock.Timer
}

// NewMachine returns an empty machine. A nil clock is the real one.
func NewMachine(c clock.WithDelayedExecution) *Machine {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Machine{clock: c, owned: map[string]*pod{}}
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
		Code: sandbox.UnknownExitCode, Unknown: true, Reason: "ContainerStatusUnknown", Message: "nobody saw how the container ended",
	})
}

// Intrude puts a pod on the machine that no sandbox of ours made.
func (m *Machine) Intrude(ref sandbox.PodRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owned[ref.UID] = &pod{ref: ref, foreign: true, containers: map[string]*container{}}
}

// Has says whether anything of the pod, ours or not, is on the machine.
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

// Prepare implements sandbox.Sandbox.
func (s *Sandbox) Prepare(ctx context.Context, p *corev1.Pod) error {
	wait, err := prepareTime(p)
	if err != nil {
		return err
	}
	if wait != 0 {
		done := make(chan struct{})
		if wait != never {
			timer := s.m.clock.AfterFunc(wait, func() { close(done) })
			defer timer.Stop()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-done:
		}
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	uid := string(p.UID)
	if s.m.owned[uid] == nil {
		s.m.owned[uid] = &pod{
			ref:        sandbox.PodRef{UID: uid, Namespace: p.Namespace, Name: p.Name},
			containers: map[string]*container{},
		}
	}
	return nil
}

// Start implements sandbox.Sandbox.
func (s *Sandbox) Start(_ context.Context, p *corev1.Pod, spec sandbox.Container) error {
	b, err := behaviourOf(p, spec.Name)
	if err != nil {
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
	c := &container{behaviour: b, ended: make(chan struct{}), state: sandbox.ContainerState{
		Name: spec.Name, ID: fmt.Sprintf("synthetic://%s/%s", p.UID, spec.Name), StartedAt: s.m.clock.Now(),
	}}
	owner.containers[spec.Name] = c
	s.m.starts++
	if b.after != never {
		// A fake clock calls with its own lock held, and the end is told the time by that clock.
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
	state := sandbox.PodState{PodRef: p.ref}
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
	number := int32(15)
	if signal == sandbox.Kill {
		number = 9
	} else if c.behaviour.ignoreTerminate {
		return nil
	}
	s.m.finish(c, sandbox.Exit{Code: 128 + number, Signal: number})
	return nil
}

// Exec implements sandbox.Sandbox.
func (s *Sandbox) Exec(_ context.Context, podUID, name string, _ []string) (int, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	c, err := s.m.container(podUID, name)
	if err != nil {
		return 0, err
	}
	if c.state.Exit != nil {
		return 0, fmt.Errorf("container %s has exited", name)
	}
	return c.behaviour.exec, nil
}

// Remove implements sandbox.Sandbox.
func (s *Sandbox) Remove(_ context.Context, podUID string) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	p, err := s.m.pod(podUID)
	if err != nil {
		return nil // ErrNotFound, the only error there is: nothing to remove
	}
	for _, c := range p.containers {
		s.m.finish(c, sandbox.Exit{Code: sandbox.UnknownExitCode, Signal: 9})
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
