package standin

import (
	"container/heap"
	"time"
)

// deadline is something to check later. One that is out of date by then is ignored, so nothing is ever removed from
// the heap.
type deadline struct {
	at  time.Time
	seq int64
	do  func() // called with the lock held
}

type deadlineHeap []deadline

func (h deadlineHeap) Len() int { return len(h) }
func (h deadlineHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].seq < h[j].seq
	}
	return h[i].at.Before(h[j].at)
}
func (h deadlineHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *deadlineHeap) Push(x any)   { *h = append(*h, x.(deadline)) }
func (h *deadlineHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = deadline{}
	*h = old[:len(old)-1]
	return last
}

func (s *Server) deadlineLocked(at time.Time, do func()) {
	s.deadlineSeq++
	heap.Push(&s.deadlines, deadline{at: at, seq: s.deadlineSeq, do: do})
	if s.deadlines[0].seq == s.deadlineSeq {
		select {
		case s.earlier <- struct{}{}:
		default:
		}
	}
}

// Tick does everything that is due by the clock: jobs that were not acquired are queued again, runners that fell
// silent go offline, silent jobs are lost, tokens and old registrations are deleted. Run calls it when something is
// due; a test that moves its own clock calls it itself. It returns when the next thing is due, the zero time if
// nothing is.
func (s *Server) Tick() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for len(s.deadlines) > 0 && !s.deadlines[0].at.After(now) {
		due := heap.Pop(&s.deadlines).(deadline)
		due.do()
	}
	if len(s.deadlines) == 0 {
		return time.Time{}
	}
	return s.deadlines[0].at
}
