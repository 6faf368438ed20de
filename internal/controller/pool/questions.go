package pool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// fenceQuestions are a pool's questions to the fence. A pass puts them, the removals take them, and as long as some are pending
// or in flight no others are put. It is safe for concurrent use.
type fenceQuestions struct {
	mu       sync.Mutex
	pending  []lifecycle.Action
	inFlight bool
}

// put has the questions asked, and reports whether it could.
func (f *fenceQuestions) put(asks []lifecycle.Action) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(asks) == 0 || len(f.pending) > 0 || f.inFlight {
		return false
	}
	f.pending = asks
	return true
}

// take returns the pending questions, which are in flight from then on.
func (f *fenceQuestions) take() []lifecycle.Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	asks := f.pending
	f.pending, f.inFlight = nil, f.inFlight || len(asks) > 0
	return asks
}

// done notes that the questions in flight were answered.
func (f *fenceQuestions) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inFlight = false
}

// askFence puts a pool's questions to the fence and records the answers.
func (q *removals) askFence(ctx context.Context, state *poolState) {
	asks := state.questions.take()
	if len(asks) == 0 {
		return
	}
	defer state.questions.done()
	answers := q.stillGone(ctx, state, asks)
	var refs []lifecycle.RunnerRef
	var at []int
	for i, a := range asks {
		if answers[i].Detail == "" {
			refs, at = append(refs, a.Runner.Ref(state.key.Namespace, state.key.Name)), append(at, i)
		}
	}
	if len(refs) > 0 {
		for k, answer := range q.remover.Fence.Ask(ctx, refs) {
			answers[at[k]] = state.weigh(asks[at[k]], answer)
		}
	}
	q.protectBusy(ctx, state, asks, answers)
	for _, answer := range answers {
		q.metrics.fence(state.key.Name, answer.Verdict)
	}
	state.recordAnswers(asks, answers, q.now())
	q.events.asked(state.key, asks, answers)
}

// recordAnswers records what the fence said.
func (s *poolState) recordAnswers(asks []lifecycle.Action, answers []lifecycle.Answer, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range asks {
		m := s.members[a.Runner.Name]
		if m == nil || m.uid != a.Runner.UID {
			continue
		}
		m.leave.Answered(answers[i], a.Reason, 0, pace, now)
		if answers[i].Verdict == lifecycle.Unknown && m.leave.Removal != lifecycle.RemovalNone { // EXCL-3: regardless of the other answers
			s.unsure[m.name], s.fenceSays = true, answers[i].Detail
		}
		s.settle(m, now)
	}
}

// weigh turns a grant without a proof into an unknown if the runner is lost and shows work (EXCL-4): the server's row says that the runner
// was retired, as after a restore that lost rows.
func (s *poolState) weigh(a lifecycle.Action, answer lifecycle.Answer) lifecycle.Answer {
	m, exists := s.copyOf(a.Runner.Name)
	if answer.Verdict != lifecycle.Granted || answer.Proof != "" || a.Runner.Stage != lifecycle.StageLost || !exists || m.work() == "" {
		return answer
	}
	return lifecycle.Answer{Detail: fmt.Sprintf("%s shows signs of work (%s), and the server cannot prove that the job is over: "+
		"if you are certain, give the reason in its annotation %s and delete it", m.name, m.work(), runnerpod.AnnotationAllowDeletion)}
}
