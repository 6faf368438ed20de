package registeredtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// Op is one kind of call.
type Op string

// The calls that are counted, and that faults can be set for.
const (
	For    Op = "for"
	JIT    Op = "jit"
	Token  Op = "token"
	Remove Op = "remove"
	Find   Op = "find"
	Look   Op = "look"
)

// Runner is a registration.
type Runner struct {
	ID           int64
	Name         string
	Online, Busy bool
	Ephemeral    bool
	Labels       []string
	Target       registration.Target
	Credentials  registration.Credentials
}

// GitHub is all of it. It is safe for concurrent use. The zero value is not ready: use New.
type GitHub struct {
	mu      sync.Mutex
	now     func() time.Time
	nextID  int64
	runners map[string]*Runner
	calls   map[Op]int
	removed []string
	minted  []string

	// fault answers a call instead of GitHub, or nil.
	fault func(op Op, name string) error
	// lose is the number of mints that take effect without an answer.
	lose int
	// removal answers a removal instead of GitHub, or nil.
	removal func(registration.Subject) *lifecycle.Answer
	// hang holds every call with these credentials until it is closed.
	hang    map[registration.Credentials]chan struct{}
	hanging int
}

// New returns a GitHub that knows no runner.
func New(now func() time.Time) *GitHub {
	return &GitHub{now: now, nextID: 100, runners: map[string]*Runner{}, calls: map[Op]int{}, hang: map[registration.Credentials]chan struct{}{}}
}

// Fault has calls answered with an error; nil for none.
func (g *GitHub) Fault(fault func(op Op, name string) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault = fault
}

// LoseMints lets the next n mints take effect without an answer.
func (g *GitHub) LoseMints(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lose = n
}

// AnswerRemovals has removals answered so; nil, and a nil answer, for as GitHub would.
func (g *GitHub) AnswerRemovals(answer func(registration.Subject) *lifecycle.Answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removal = answer
}

// Hang holds every removal with these credentials until release is called.
func (g *GitHub) Hang(credentials registration.Credentials) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate := make(chan struct{})
	g.hang[credentials] = gate
	return sync.OnceFunc(func() { close(gate) })
}

// Hanging is how many removals Hang has held.
func (g *GitHub) Hanging() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hanging
}

// Calls is how many of a kind there were.
func (g *GitHub) Calls(op Op) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[op]
}

// Put adds a registration, or replaces the one of its name; an ID of 0 is given one.
func (g *GitHub) Put(r Runner) Runner {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.ID == 0 {
		g.nextID++
		r.ID = g.nextID
	}
	g.runners[r.Name] = &r
	return r
}

// Change changes a registration, if there is one of that name.
func (g *GitHub) Change(name string, change func(*Runner)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.runners[name]; r != nil {
		change(r)
	}
}

// Drop forgets a registration, as GitHub does with an ephemeral one whose job is done.
func (g *GitHub) Drop(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.runners, name)
}

// Get returns the registration of that name.
func (g *GitHub) Get(name string) (Runner, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.runners[name]; r != nil {
		return *r, true
	}
	return Runner{}, false
}

// Len is how many registrations there are.
func (g *GitHub) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.runners)
}

// Minted are the names that were minted, Removed those that were removed, in order.
func (g *GitHub) Minted() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.minted...)
}

// Removed are the names of the registrations that were removed, in order.
func (g *GitHub) Removed() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.removed...)
}

// call counts, and is the fault that was set. The caller holds the lock.
func (g *GitHub) call(op Op, name string) error {
	g.calls[op]++
	if g.fault != nil {
		return g.fault(op, name)
	}
	return nil
}

// For implements registration.Registrars.
func (g *GitHub) For(_ context.Context, credentials registration.Credentials, target registration.Target) (registration.Registrar, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.call(For, credentials.Secret); err != nil {
		return nil, err
	}
	if target.Repository != "" {
		target.RepositoryID = 4711
	}
	return &registrar{github: g, credentials: credentials, target: target}, nil
}

// Look implements registered.Roster: the list is always up to date.
func (g *GitHub) Look(_ registration.Credentials, _ registration.Target, name string) registration.Sighting {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := registration.Sighting{AsOf: g.now(), Next: g.now().Add(time.Second)}
	if g.call(Look, name) != nil {
		return seen
	}
	if r := g.runners[name]; r != nil {
		seen.Known = true
		seen.Registration = registration.Registration{ID: r.ID, Name: r.Name, Online: r.Online, Busy: r.Busy}
	}
	return seen
}

type registrar struct {
	github      *GitHub
	credentials registration.Credentials
	target      registration.Target
}

func (r *registrar) Target() registration.Target { return r.target }

func (r *registrar) JIT(_ context.Context, ask registration.JITRequest) (fleet.JIT, error) {
	g := r.github
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.call(JIT, ask.Name); err != nil {
		return fleet.JIT{}, err
	}
	if g.runners[ask.Name] != nil {
		return fleet.JIT{}, fmt.Errorf("minting %s: %w", ask.Name, fleet.ErrNameTaken)
	}
	g.nextID++
	g.runners[ask.Name] = &Runner{
		ID: g.nextID, Name: ask.Name, Ephemeral: true, Labels: ask.Labels, Target: r.target, Credentials: r.credentials,
	}
	g.minted = append(g.minted, ask.Name)
	if g.lose > 0 {
		g.lose--
		return fleet.JIT{}, fmt.Errorf("minting %s: %w", ask.Name, fleet.ErrUncertain)
	}
	return fleet.JIT{RunnerID: g.nextID, Name: ask.Name, Encoded: fleet.NewSecret(fmt.Sprintf("jit-%d", g.nextID))}, nil
}

func (r *registrar) Token(context.Context) (registration.Token, error) {
	g := r.github
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.call(Token, ""); err != nil {
		return registration.Token{}, err
	}
	g.nextID++
	return registration.Token{
		Value: fleet.NewSecret(fmt.Sprintf("token-%d", g.nextID)), ExpiresAt: g.now().Add(time.Hour), URL: "https://github.com/" + r.target.Repository + r.target.Organization,
	}, nil
}

func (r *registrar) Remove(ctx context.Context, subject registration.Subject) lifecycle.Answer {
	g := r.github
	g.mu.Lock()
	gate := g.hang[r.credentials]
	if gate != nil {
		g.hanging++
	}
	g.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return lifecycle.Answer{Detail: "GitHub does not answer"}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.call(Remove, subject.Name); err != nil {
		return lifecycle.Answer{Detail: err.Error()}
	}
	if g.removal != nil {
		if answer := g.removal(subject); answer != nil {
			return *answer
		}
	}
	for name, there := range g.runners {
		if there.ID != subject.ID && (subject.ID != 0 || name != subject.Name) {
			continue
		}
		if there.Busy && !subject.Ended {
			return lifecycle.Answer{Verdict: lifecycle.Busy, Detail: "GitHub reports a running job"}
		}
		delete(g.runners, name)
		g.removed = append(g.removed, name)
		return proven(subject, lifecycle.Answer{Verdict: lifecycle.Granted, Detail: "GitHub has removed it"})
	}
	return proven(subject, lifecycle.Answer{Verdict: lifecycle.Granted, Detail: "GitHub has no such runner"})
}

// proven is what package registration adds for runners that prove nothing themselves.
func proven(subject registration.Subject, answer lifecycle.Answer) lifecycle.Answer {
	if subject.Lost || subject.Ended {
		answer.Proof = answer.Detail
	}
	return answer
}

func (r *registrar) Find(_ context.Context, name string) (registration.Registration, error) {
	g := r.github
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.call(Find, name); err != nil {
		return registration.Registration{}, err
	}
	if there := g.runners[name]; there != nil {
		return registration.Registration{ID: there.ID, Name: name, Online: there.Online, Busy: there.Busy}, nil
	}
	return registration.Registration{}, github.ErrAbsent
}

func (r *registrar) List(_ context.Context, yield func(registration.Registration) bool) error {
	g := r.github
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, there := range g.runners {
		if !yield(registration.Registration{ID: there.ID, Name: name, Online: there.Online, Busy: there.Busy}) {
			return nil
		}
	}
	return nil
}

func (r *registrar) Queue(context.Context, func(github.WorkflowJob) bool) error { return nil }
