package pool

import "time"

// The ServiceAccounts of a pool's runners: each has the name of its pod, and goes with it (POOL-1).

// accountSeen records whether a ServiceAccount of that name exists. It returns whether the account needs a check, and after which time: at
// once if its pod is gone; later if no pod was seen yet, which is probably on its way into the cache.
func (s *poolState) accountSeen(name string, exists bool, now time.Time) (look bool, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[name]
	if m == nil {
		if !exists {
			return false, 0
		}
		m = s.member(name)
	}
	m.account = exists
	s.settle(m, now)
	switch {
	case !exists:
		return false, 0
	case m.gone:
		return true, 0
	default:
		return m.bare(), s.grace()
	}
}

// bare reports whether a ServiceAccount is all that is known of the member.
func (m *member) bare() bool {
	return m.account && !m.observed && !m.creating && !m.gone && m.uid == ""
}

// grace is the minimum age at which a ServiceAccount without a pod is deleted. In a pool that is being deleted it is zero: if a controller
// that died has created a pod that is still on its way, the API server rejects it without its ServiceAccount, and the pool needs no pod.
func (s *poolState) grace() time.Duration {
	if s.draining {
		return 0
	}
	return s.orphanGrace
}

// patience is grace, for those who do not hold mu.
func (s *poolState) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grace()
}

// drain notes whether the pool is being deleted, and has the ServiceAccounts looked after that waited for a pod when that
// begins.
func (s *poolState) drain(terminating bool, w *work) {
	if terminating && !s.draining {
		for name, m := range s.members {
			if m.bare() {
				w.remove = append(w.remove, name)
			}
		}
	}
	s.draining = terminating
}
