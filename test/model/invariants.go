package model

// The invariants of every state, and of every step.

// brokenIn names a rule that the state breaks; empty for none.
func (m *machine) brokenIn(s *state) string {
	for p := range m.pods {
		if rule := m.brokenAt(s, p); rule != "" {
			return rule
		}
	}
	if a, b := &s.db.claim[0], &s.db.claim[1]; m.live(a) && m.live(b) && a.job != 0 && a.job == b.job {
		return "CLAIM-1 two live claims have one job"
	}
	for j := range m.jobs {
		if m.d.terminal[s.db.job[j]] && s.job[j] == ghQueued {
			return "RECV-7 a job is recorded as ended while GitHub waits for a runner"
		}
	}
	return ""
}

func (m *machine) brokenAt(s *state, p int) string {
	q := &s.pod[p]
	live := m.live(s.claimOf(p))
	if q.life == deleted && q.runner < runExited && s.busy(p) {
		return "EXCL-1 a runner works in a pod that the fleet deleted"
	}
	// CLAIM-17: rows may be lost between a restore and the end of its hold, and no longer.
	lost := s.backup == backupHeld || s.backup == backupRestored && m.noHold
	if q.life != gone && !lost && !live && (s.busy(p) || s.mayStart(p)) {
		return "EXCL-6 a claim has ended while a registration of it is alive"
	}
	if q.life != up {
		return ""
	}
	if q.shown&shownOwner != 0 && (q.poller <= pollWaiting || q.poller == pollFailed) {
		return "CLAIM-6 the owner label was stamped on a pod that holds no configuration"
	}
	if m.healthy && q.poller <= pollWaiting && (s.claimOf(p).st == claimSpent || s.claimOf(p).st == claimRetired) {
		return "CLAIM-16 a healthy pod was burnt"
	}
	if m.healthy && q.poller == pollDismissed && q.jit == 0 {
		return "CLAIM-16 a healthy pod was sent away"
	}
	if m.healthy && q.poller.staged() && q.runner <= runConfigured && s.reg[q.jit-1] == regGone {
		return "CLAIM-7 a configuration was delivered and then taken back"
	}
	return ""
}

// brokenByStep names a rule that a step breaks, for any step.
func (m *machine) brokenByStep(s, t *state) string {
	if s.backup == backupTaken && t.backup != backupTaken {
		return ""
	}
	for j := range m.jobs {
		if m.d.terminal[s.db.job[j]] && s.db.job[j] != t.db.job[j] {
			return "CLAIM-4 a job that had ended came back"
		}
	}
	for p := range m.pods {
		if t.pod[p].shown&^s.pod[p].shown&shownOwner != 0 && (s.pod[p].runner.configured() || s.busy(p)) {
			return "TEN-8 the owner label was written after the runner had started"
		}
	}
	return ""
}

// goals must stay reachable from every state, without another fault (RECV-5).
func (m *machine) goals() map[string]func(*state) bool {
	goals := map[string]func(*state) bool{}
	for p := range m.pods {
		goals["the claim of "+podNames[p]+" can end"] = func(s *state) bool { return !m.live(s.claimOf(p)) }
		if p < m.removable {
			goals[podNames[p]+" can go"] = func(s *state) bool { return s.pod[p].life == gone }
		}
	}
	for p := range m.stops {
		goals["the stopped "+podNames[p]+" goes"] = func(s *state) bool { return s.pod[p].life == up || s.pod[p].life == gone }
	}
	for j := range m.jobs {
		goals[jobNames[j]+" can end, or be queued again"] = func(s *state) bool {
			return s.db.job[j] == jobQueued && s.job[j] != ghCompleted || m.d.terminal[s.db.job[j]]
		}
	}
	return goals
}
