package registered

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// pace is how often GitHub is asked about a static or lost runner. It has no deadline: the questions go on until the removal succeeds or is
// withdrawn (RUN-2).
var pace = lifecycle.GitHubPace(false)

// Other waits of questions to GitHub.
const (
	// busyEphemeral is how long an ephemeral runner that GitHub called busy is not asked about again while it shows nothing
	// new: it ends by itself. It is so long that it only matters for a job that was taken back before it began.
	busyEphemeral = 6 * time.Hour
	// waitForRoom is how long a question waits while as many as may be are under way with its credentials.
	waitForRoom = 2 * time.Second
)

// memory keeps what GitHub has answered for as long as asking again is of no use. It survives no restart, and need not.
type memory struct {
	mu    sync.Mutex
	byUID map[string]*recollection
}

type recollection struct {
	answer   lifecycle.Answer
	shown    string // what the pod showed when GitHub was asked
	until    time.Time
	unknowns int
	since    time.Time // of the first of the unknowns
	granted  time.Time // nothing takes that back
}

func newMemory() *memory { return &memory{byUID: map[string]*recollection{}} }

// recall is the last answer of a pod that shows the same, while it is of no use to ask again.
func (m *memory) recall(uid, shown string, lost bool, now time.Time) (lifecycle.Answer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.byUID[uid]
	if last != nil && !last.granted.IsZero() && !lost {
		return grantOf(last.granted), true // the cache does not show it yet
	}
	if last == nil || last.shown != shown || !now.Before(last.until) {
		return lifecycle.Answer{}, false
	}
	answer := last.answer
	answer.NotBefore = last.until
	return answer, true
}

// note keeps an answer, and says when the fence may be asked again.
func (m *memory) note(v *View, shown string, lost bool, answer lifecycle.Answer, now time.Time) lifecycle.Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if answer.Verdict == lifecycle.Granted {
		delete(m.byUID, v.UID)
		if v.RunnerID != 0 && (!lost || answer.Proof != "") {
			m.byUID[v.UID] = &recollection{granted: now}
		}
		return answer
	}
	last := m.byUID[v.UID]
	if last == nil {
		last = &recollection{}
		m.byUID[v.UID] = last
	}
	if answer.Verdict == lifecycle.Unknown {
		if last.unknowns++; last.since.IsZero() {
			last.since = now
		}
	} else {
		last.unknowns, last.since = 0, time.Time{}
	}
	_, forever, until := lifecycle.GitHubPace(v.Ephemeral && !lost).AskedAgain(answer, last.unknowns, now)
	if last.until = until; forever {
		last.until = now.Add(busyEphemeral)
		if answer.NotBefore.After(last.until) {
			last.until = answer.NotBefore
		}
	}
	answer.NotBefore = last.until
	last.answer, last.shown = answer, shown
	return answer
}

// unansweredSince is when GitHub was first asked without an answer; zero when it was not asked, or has answered.
func (m *memory) unansweredSince(uid string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := m.byUID[uid]; last != nil {
		return last.since
	}
	return time.Time{}
}

// granted reports whether GitHub has removed the registration, as far as this process has heard.
func (m *memory) granted(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.byUID[uid]
	return last != nil && !last.granted.IsZero()
}

func (m *memory) forget(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byUID, uid)
}

// shows is what must change before a busy ephemeral runner is asked about again.
func (v *View) shows(lost bool) string {
	return fmt.Sprint(v.Started, v.Running, v.Ready, v.Ended, v.Signs.Work(), lost)
}

// Ask returns GitHub's own answer on whether these runners may be removed (RUN-2). The pod's own signs are checked first (EXCL-6), and a
// recent refusal is not asked for again. Grants are written on the pods.
func (s *Service) Ask(ctx context.Context, runners []lifecycle.RunnerRef) []lifecycle.Answer {
	answers := make([]lifecycle.Answer, len(runners))
	byCredentials := map[registration.Credentials][]question{}
	for i, ref := range runners {
		q, open := s.weigh(ctx, ref, &answers[i])
		if open {
			byCredentials[q.view.Credentials] = append(byCredentials[q.view.Credentials], q)
		}
	}
	var wait sync.WaitGroup
	for _, questions := range byCredentials {
		queue := make(chan question, len(questions))
		for _, q := range questions {
			queue <- q
		}
		close(queue)
		for range min(s.options.Asks, len(questions)) {
			wait.Go(func() {
				for q := range queue {
					*q.answer = s.ask(ctx, q)
				}
			})
		}
	}
	wait.Wait()
	for i := range answers {
		s.metrics.fence(answers[i].Verdict)
	}
	return answers
}

// grantOf is the answer about a runner whose registration was removed then. It lifts no veto: what proves that its work is
// over is GitHub's answer to that question.
func grantOf(at time.Time) lifecycle.Answer {
	return lifecycle.Answer{Verdict: lifecycle.Granted, Detail: "GitHub has removed its registration at " + at.UTC().Format(time.RFC3339)}
}

// question is one that only GitHub can answer.
type question struct {
	ref    lifecycle.RunnerRef
	view   View
	shown  string
	answer *lifecycle.Answer
}

// weigh answers what GitHub need not be asked, and reports whether it must.
func (s *Service) weigh(ctx context.Context, ref lifecycle.RunnerRef, answer *lifecycle.Answer) (question, bool) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	v, exists, err := s.View(ctx, key)
	if err == nil && !exists {
		v, exists, err = s.Fresh(ctx, key)
	}
	now := s.now()
	switch {
	case err != nil:
		*answer = lifecycle.Answer{Detail: err.Error()} // EXCL-3
	case !exists:
		// A vanished pod blocks no removal; the owner of its registration looks after that.
		*answer = lifecycle.Answer{Verdict: lifecycle.Granted, Detail: "its pod does not exist", Proof: "its pod does not exist"}
	case v.UID != ref.UID:
		*answer = lifecycle.Answer{Detail: "another pod has its name now"}
	case !v.Unregistered.IsZero() && !ref.Lost: // of a lost one GitHub is asked for proof (POOL-7)
		*answer = grantOf(v.Unregistered)
	case v.Signs.Work() != "" && !ref.Lost: // EXCL-6: the pod's own sign before GitHub's
		*answer = lifecycle.Answer{Verdict: lifecycle.Busy, Detail: v.Signs.Work()}
	case v.RunnerName == "":
		*answer = lifecycle.Answer{Detail: "its pod lacks the annotation of its registration (" + runnerpod.AnnotationRegistration + ")"}
	case v.registering(now) && !ref.Lost:
		// It may receive a job the moment that it is registered, and no sign would show it yet.
		*answer = lifecycle.Answer{Detail: "it is registering at GitHub", NotBefore: v.askable(now)}
	default:
		shown := v.shows(ref.Lost)
		if last, again := s.memory.recall(v.UID, shown, ref.Lost, now); again {
			*answer = last
			return question{}, false
		}
		return question{ref: ref, view: v, shown: shown, answer: answer}, true
	}
	return question{}, false
}

// registering reports whether a static runner is up and not yet in GitHub's list.
func (v *View) registering(now time.Time) bool {
	if v.Ephemeral || v.RunnerID != 0 || !v.Running {
		return false
	}
	due := v.Overdue(0)
	return due.IsZero() || now.Before(due) || v.Unseen.IsZero()
}

// askable is when a registering runner is checked again.
func (v *View) askable(now time.Time) time.Time {
	next := now.Add(pace.Busy)
	if due := v.Overdue(0); due.After(now) {
		next = earliest(due, next)
	}
	return next
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ask puts one question to GitHub.
func (s *Service) ask(ctx context.Context, q question) lifecycle.Answer {
	v := &q.view
	leave, err := s.enter(ctx, v.Credentials)
	if err != nil {
		return lifecycle.Answer{Detail: err.Error(), NotBefore: s.now().Add(pace.First)}
	}
	defer leave()
	answer := s.remove(ctx, v, q.ref.Lost)
	if answer.Verdict == lifecycle.Granted {
		if err := s.recordGrant(ctx, v, q.ref.Lost && answer.Proof == ""); err != nil {
			answer = lifecycle.Answer{Detail: err.Error()} // asked again: GitHub then answers that there is none
		}
	}
	if answer.Verdict == lifecycle.Busy && q.ref.Lost { // EXCL-7: an earlier answer may have been a proof, and be written on the pod
		if err := s.Remover().Protect(ctx, q.ref); err != nil {
			answer = lifecycle.Answer{Detail: err.Error()}
		}
	}
	return s.memory.note(v, q.shown, q.ref.Lost, answer, s.now())
}

func (s *Service) remove(ctx context.Context, v *View, lost bool) lifecycle.Answer {
	registrar, err := s.options.Registrars.For(ctx, v.Credentials, v.Target)
	if err != nil {
		return registration.Unasked(err)
	}
	return registrar.Remove(ctx, registration.Subject{
		ID: v.RunnerID, Name: v.RunnerName, Ended: v.Ended, NeverStarted: !v.Started, Lost: lost,
	})
}

// recordGrant writes on the pod, once, that GitHub has removed the registration. It does not where that is not certain: of a
// runner whose id was never known there was perhaps none to be removed, and there may be one yet.
func (s *Service) recordGrant(ctx context.Context, v *View, doubtful bool) error {
	if v.RunnerID == 0 || doubtful || !v.Unregistered.IsZero() || s.memory.granted(v.UID) {
		return nil
	}
	return s.annotate(ctx, v, map[string]string{runnerpod.AnnotationUnregistered: s.now().UTC().Format(time.RFC3339)})
}

// enter takes one of the places that there are for questions with these credentials.
func (s *Service) enter(ctx context.Context, c registration.Credentials) (leave func(), err error) {
	s.mu.Lock()
	bulkhead := s.bulkheads[c]
	if bulkhead == nil {
		bulkhead = make(chan struct{}, s.options.Asks)
		s.bulkheads[c] = bulkhead
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, waitForRoom)
	defer cancel()
	select {
	case bulkhead <- struct{}{}:
		return func() { <-bulkhead }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("asking GitHub with the credentials of Secret %q: %w", c.Secret, registration.ErrBusy)
	}
}
