package runnerowner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// conflictRetry is how soon a removal is tried again after the object had changed: its watch is about to show that.
const conflictRetry = 200 * time.Millisecond

// leftAfter is how long a member without a pod waits for GitHub's answer about its registration. Nothing can run in it, and GitHub itself
// removes runners that stay offline: deleted credentials must not keep it for ever.
const leftAfter = 10 * time.Minute

// avoidFor is how long a name is not tried that something else has.
const avoidFor = 10 * time.Minute

// dispatch gives the crews what a pass has found to do.
func (r *Reconciler) dispatch(s *ownerState, w work) {
	for _, lost := range w.lost {
		r.events.jobLost(s, lost)
	}
	for _, a := range w.ask {
		r.give(s, s.github, "ask "+a.Runner.Name, func(ctx context.Context) { r.ask(ctx, s, a) })
	}
	for _, name := range w.remove {
		crew := s.cluster
		if m, exists := s.copyOf(name); exists && m.leave.Removal == lifecycle.RemovalGranted {
			crew = s.github // the fence is asked once more
		}
		r.give(s, crew, "remove "+name, func(ctx context.Context) { r.remove(ctx, s, name) })
	}
	for _, name := range w.tend {
		r.give(s, s.github, "tend "+name, func(ctx context.Context) { r.tend(ctx, s, name) })
	}
	for _, name := range w.look {
		r.give(s, s.cluster, "look "+name, func(ctx context.Context) { r.look(ctx, s, name) })
	}
}

// give has a crew do something, and a pass made afterwards.
func (r *Reconciler) give(s *ownerState, c *crew, key string, do func(context.Context)) {
	c.give(task{key: key, do: func(ctx context.Context) {
		do(ctx)
		c.done(key)
		r.wake(ctx, s.key)
	}})
}

// ask asks the fence about one runner. One that never had a pod has nothing that could work: deleting its backing is safe whenever a pod
// appears, for that is fenced, too.
func (r *Reconciler) ask(ctx context.Context, s *ownerState, a lifecycle.Action) {
	m, exists := s.copyOf(a.Runner.Name)
	if !exists || m.id() != a.Runner.UID || m.leave.Removal != lifecycle.RemovalAsked {
		return // withdrawn, or another by now
	}
	answer := lifecycle.Answer{Verdict: lifecycle.Granted, Detail: "it has no pod"}
	if m.pod != nil {
		ref := m.pod.Ref()
		ref.Lost = a.Runner.Stage == lifecycle.StageLost
		answer = r.options.Service.Ask(ctx, []lifecycle.RunnerRef{ref})[0]
		r.metrics.fence(answer.Verdict)
	}
	s.answered(a.Runner.Name, a.Runner.UID, answer, a.Reason, r.now())
	r.events.asked(s, a, answer)
}

// remove carries out one removal, or its next step.
func (r *Reconciler) remove(ctx context.Context, s *ownerState, name string) {
	m, exists := s.copyOf(name)
	if !exists {
		return
	}
	now := r.now()
	granted := m.leave.Removal == lifecycle.RemovalGranted || m.pod != nil && !m.pod.Unregistered.IsZero()
	over := m.pod == nil || m.pod.Ended || !m.pod.Deleting.IsZero()
	if !granted && !over && !m.Ended {
		return // withdrawn, or working after all: not ours to remove
	}
	removal := Removal{Owner: s.loadedOwner(), Member: m.Member, Exists: m.exists, Pod: m.pod, Over: m.spent, Granted: granted, Proof: m.leave.Proof, Lost: m.leave.Lost}
	if m.pod != nil {
		place := r.options.Service.Place(m.pod.Node)
		removal.NodeGone = place.Lost(now)
		removal.Lost = m.leave.Lost || removal.NodeGone
	}
	removal.Left = m.pod == nil && !m.Started && !m.leave.Since.IsZero() && !now.Before(m.leave.Since.Add(leftAfter))
	answer, err := r.options.Backing.Remove(ctx, removal)
	if ctx.Err() == nil {
		s.change(name, m.id(), now, func(m *member) { m.refused = m.refused.After(err, now) })
	}
	switch {
	case err == nil:
		if removal.Left && answer.Verdict == lifecycle.Unknown && answer.Detail != "" {
			r.events.left(s, &m, answer)
		}
		s.change(name, m.id(), now, func(m *member) {
			if !m.leave.Deleted {
				r.metrics.removals.WithLabelValues(r.kind, reasonOf(m)).Inc()
			}
			m.leave.Accepted(now)
			m.fails, m.retryAt = 0, now.Add(time.Minute)
		})
	case errors.Is(err, lifecycle.ErrNotNow):
		s.answered(name, m.id(), answer, m.leave.Why, now)
		r.metrics.fence(answer.Verdict)
		s.change(name, m.id(), now, func(m *member) { m.retryAt = later(now.Add(time.Second), m.leave.AskAt) })
	case errors.Is(err, lifecycle.ErrVetoed), errors.Is(err, lifecycle.ErrNoGrant):
		s.change(name, m.id(), now, func(m *member) {
			m.leave.Vetoed(s.pace, now)
			m.retryAt = now.Add(time.Minute)
		})
	case apierrors.IsConflict(err):
		s.change(name, "", now, func(m *member) { m.retryAt = now.Add(conflictRetry) })
	case ctx.Err() == nil:
		r.metrics.failures.WithLabelValues(r.kind, "remove").Inc()
		r.options.Log.Warn("removal step failed, retrying", "kind", r.kind, "owner", s.key.Name, "runner", name, "error", err)
		s.change(name, "", now, func(m *member) { m.fails++; m.retryAt = now.Add(lifecycle.Backoff(m.fails)) })
	}
}

func reasonOf(m *member) string {
	if m.pod == nil || m.pod.Ended || m.leave.Why == "" {
		return string(lifecycle.ReasonFinished)
	}
	return string(m.leave.Why)
}

// tend has the Backing look after one member.
func (r *Reconciler) tend(ctx context.Context, s *ownerState, name string) {
	m, exists := s.copyOf(name)
	owner := s.loadedOwner()
	if !exists || owner == nil || !m.tendable() || owner.terminating() && !m.Started {
		return
	}
	key := m.tendKey()
	tended, err := r.options.Backing.Tend(ctx, owner, m.Member, m.pod)
	now := r.now()
	if err != nil && ctx.Err() != nil {
		return
	}
	if apierrors.IsConflict(err) { // it has changed since it was read, which is no failure
		s.change(name, "", now, func(m *member) { m.tendAt = now.Add(conflictRetry) })
		return
	}
	if err != nil {
		r.metrics.failures.WithLabelValues(r.kind, "tend").Inc()
		if firstLine(err) != m.tendSays {
			r.events.tendFailed(s, name, err)
		}
		r.options.Log.Warn("registering a runner failed, retrying", "kind", r.kind, "owner", s.key.Name, "runner", name, "error", err)
	}
	s.change(name, m.id(), now, func(m *member) {
		if m.tended = key; err == nil {
			m.tendFail, m.tendSays, m.tendAt, m.unfit, m.spent = 0, "", tended.Next, tended.Unfit, m.spent || tended.Ended
			return
		}
		m.tendFail++
		m.tendAt, m.tendSays = later(now.Add(patienceAfter(err, m.tendFail)), notBefore(err)), firstLine(err)
	})
}

// patienceAfter is how long GitHub is left alone after a registration that failed so often in a row: what lasts until a person
// changes something is tried seldom.
func patienceAfter(err error, failures int) time.Duration {
	for _, lasting := range []error{registration.ErrTarget, registration.ErrCredentials, registered.ErrForeignSecret, fleet.ErrForbidden, fleet.ErrRejected} {
		if errors.Is(err, lasting) { // a change of the Secret ends it
			return min(5*time.Minute<<min(failures-1, 6), time.Hour)
		}
	}
	return min(5*time.Second<<min(failures-1, 6), 3*time.Minute)
}

// notBefore is when GitHub has said to ask again; zero when it has not.
func notBefore(err error) time.Time {
	if limited := (*fleet.RateLimitedError)(nil); errors.As(err, &limited) {
		return limited.Until
	}
	return time.Time{}
}

// look reads a member past the cache: the watch has not shown what we created.
func (r *Reconciler) look(ctx context.Context, s *ownerState, name string) {
	object := r.options.Backing.NewMember()
	key := s.key
	key.Name = name
	switch err := r.reader.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		s.memberGone(name, "", r.now())
	case err != nil:
		r.options.Log.Warn("reading created objects failed, retrying", "kind", r.kind, "runner", name, "error", err)
	default:
		if seen, ours := r.options.Backing.Observe(object); ours && seen.OwnerUID == s.uid {
			s.memberSeen(seen, nil, r.now())
		}
	}
}

// createAll creates members under these names, several at once, and says how many it made for certain. The first failure ends it:
// what was not tried yet is given back.
func (r *Reconciler) createAll(ctx context.Context, o *Owner, s *ownerState, names []string) (made []string, failure error) {
	var (
		mu    sync.Mutex
		wait  sync.WaitGroup
		queue = make(chan string)
	)
	failed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return failure != nil
	}
	for range min(r.options.Workers, len(names)) {
		wait.Go(func() {
			for name := range queue {
				if failed() || ctx.Err() != nil {
					s.notCreated(name, r.now())
					continue
				}
				uid, err := r.options.Backing.Create(ctx, o, name)
				outcome := s.createAnswered(name, uid, err, r.now())
				r.metrics.creations.WithLabelValues(r.kind, outcome).Inc()
				mu.Lock()
				if err == nil {
					made = append(made, name)
				} else if failure == nil {
					failure = fmt.Errorf("creating %s: %w", name, err)
				}
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		queue <- name
	}
	close(queue)
	wait.Wait()
	s.createsDone(failure, r.now())
	return made, failure
}

// createAnswered records the outcome of one creation.
func (s *ownerState) createAnswered(name, uid string, err error, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[name]
	switch {
	case m == nil:
		return "gone" // shown by the watch, and gone again already
	case err == nil:
		if m.creating = false; m.UID == "" {
			m.UID = uid
		}
		s.settle(m, now)
		return "created"
	case uncertain(err): // creating stays: the same name is tried again, so that nothing is created twice
		m.tried = true
		return "uncertain"
	case !m.observed:
		if errors.Is(err, ErrTaken) {
			s.avoided[name] = now.Add(avoidFor)
		}
		m.creating, m.observed = false, true
		s.settle(m, now)
	}
	return "refused"
}

// uncertain tells everything that leaves the outcome open from a clear no of the API server.
func uncertain(err error) bool {
	if errors.Is(err, ErrTaken) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code < 400 || code >= 500 || code == 408
}

// notCreated gives a name back that was not tried, or leaves it if an earlier try is open.
func (s *ownerState) notCreated(name string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[name]; m != nil && m.creating && !m.tried {
		m.creating, m.observed = false, true
		s.settle(m, now)
	}
}

// createsDone notes how a batch of creations went: after a failure the next waits, longer each time.
func (s *ownerState) createsDone(err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.createFails, s.createSays = 0, ""
		return
	}
	s.createFails++
	s.createSays = firstLine(err)
	s.hold(now.Add(lifecycle.Backoff(s.createFails)))
}
