package model

// SIGTERM, and what ends a pod that has got it (EXCL-8): internal/agent's supervisor and poller, and the kubelet.

// stopSteps: SIGTERM reaches the pod, at any moment and from outside of the fleet, and what becomes of a pod that it has reached.
func (m *machine) stopSteps(s *state, p int) {
	q := &s.pod[p]
	if p < m.stops && q.life == up {
		t := *s
		t.pod[p].life, t.pod[p].term = dropped, 0
		t.setLeave(p, 0, 0)
		m.chance("SIGTERM, and a deletionTimestamp: others delete", p, &t)
		if q.term == 0 && m.heeds(q) {
			t := *s
			t.pod[p].term = 1
			m.chance("SIGTERM alone, by a node that is being shut down, for", p, &t)
		}
	}
	if q.life != up || q.term == 1 {
		m.endingSteps(s, p)
	}
}

// heeds: something in the pod acts on SIGTERM.
func (m *machine) heeds(q *pod) bool {
	return q.poller < pollStaged || q.runner == runWaiting || m.without.silence && q.runner.configured()
}

// endingSteps: SIGTERM ends a poller that has staged nothing, and an agent that has no configuration. A runner that has its configuration
// exits when it is no longer registered, or with its job.
func (m *machine) endingSteps(s *state, p int) {
	q := &s.pod[p]
	if q.poller < pollStaged {
		t := *s
		t.failPoller(p)
		m.happens("SIGTERM ends the poller of", p, &t)
	}
	switch {
	case q.runner == runWaiting:
		m.runnerExits(s, p, true, "SIGTERM ends the agent, which has no configuration, of")
	case m.without.silence && q.runner.configured() && q.worked == 0: // EXCL-8
		m.runnerExits(s, p, true, "the agent sees no job, and signals the runner of")
	case q.runner == runHung && q.life != up:
		m.runnerExits(s, p, true, "the grace period is over of")
	}
	if q.life != up && q.poller.ended() && q.runner == runExited {
		t := *s
		t.vanish(p)
		m.happens("the pod object goes, of", p, &t)
	}
}

func (r runner) configured() bool { return r == runConfigured || r == runOnline }

// acquired: the pod's runner has acquired a job, and has not started its worker yet: nothing in the pod shows the job.
func (s *state) acquired(p int) bool {
	q := &s.pod[p]
	return q.life != gone && q.runner == runOnline && q.worked == 0 && q.jit != 0 && s.reg[q.jit-1].works()
}

// lostOrTwice names the rule if a step that is no fault ends a runner whose job it has acquired and not ended: GitHub shows the job in
// progress, and nothing runs it. A node that is out of sight takes its pods with it.
func (m *machine) lostOrTwice(s, t *state) string {
	for p := range m.pods {
		a, b := &s.pod[p], &t.pod[p]
		if a.runner == runOnline && s.busy(p) && (b.runner == runExited || b.life == gone) && a.lost == 0 {
			return "EXCL-8 an acquired job is lost: its runner was made to end"
		}
	}
	for j := range m.jobs {
		if s.exec[j] != 0 && t.exec[j] != 0 && s.exec[j] != t.exec[j] {
			return "EXCL-8 a job is run twice"
		}
	}
	return ""
}
