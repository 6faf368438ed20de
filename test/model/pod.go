package model

// The pod's poller and runner, the kubelet, and what the API server shows: internal/agent, and the node.

// truth is what the API server will show of the containers.
func (q *pod) truth() shown {
	var v shown
	switch q.poller {
	case pollDone, pollDismissed:
		v |= shownExited0
	case pollFailed, pollFailedStaged:
		v |= shownFailed
	}
	switch {
	case q.runner == runExited:
		v |= shownRunnerEnd
	case q.worked == 1:
		v |= shownNotReady // its container idle exits
	}
	return v
}

func (m *machine) podSteps(s *state, p int) {
	q := &s.pod[p]
	if q.life == gone {
		return
	}
	m.pollerSteps(s, p)
	m.runnerSteps(s, p)
	m.ackSteps(s, p)
	if q.life != up && q.seen == 0 {
		t := *s
		t.pod[p].seen = 1
		m.happens("the server sees the deletion of", p, &t)
	}
	if q.lost == 1 {
		if q.life != up {
			t := *s
			t.vanish(p)
			m.happens("nobody confirms the end of the pod, which is removed without, of", p, &t)
		}
		return
	}
	m.statusSteps(s, p)
	m.nodeSteps(s, p)
	m.stopSteps(s, p)
	if q.life == up && q.shown&shownOwner == 0 && q.poller <= pollWaiting {
		if t, ok := m.unlucky(s, faultUser); ok { // an admission policy refuses it for any other pod (EXCL-7)
			t.pod[p].life = dropped
			m.chance("a user deletes idle", p, &t)
		}
	}
}

func (m *machine) pollerSteps(s *state, p int) {
	q := &s.pod[p]
	switch q.poller {
	case pollIdle:
		// It asks only while the supervisor waits, and the owner label cuts it off.
		if (q.runner == runWaiting || m.without.singleShot) && q.shown&shownOwner == 0 {
			m.ask(s, p)
		}
	case pollWaiting:
		if t, ok := m.unlucky(s, faultConnection); ok {
			t.pod[p].poller = pollIdle
			t.deafen(p)
			m.chance("the connection breaks of", p, &t)
		}
	case pollStaged:
		m.acknowledgeSteps(s, p)
		if m.without.singleShot && q.shown&shownOwner == 0 {
			t := *s
			t.pod[p].poller, t.pod[p].gen = pollIdle, 0
			m.chance("the poller goes on in", p, &t)
		}
	}
	if q.poller > pollStaged {
		return
	}
	if t, ok := m.unlucky(s, faultPoller); ok {
		t.failPoller(p)
		m.chance("the poller crashes in", p, &t)
	}
}

// ask has a free replica take a request. Which one makes no difference.
func (m *machine) ask(s *state, p int) {
	for i := range m.requests {
		if s.op[i].at == opFree {
			t := *s
			t.pod[p].poller = pollWaiting
			t.op[i] = op{at: opRead, pod: uint8(p), conn: 1} //nolint:gosec // at most maxPods
			if !m.unnumbered {
				t.op[i].seq = s.latest(p) + 1
			}
			m.happens("a poll of", p, &t)
			return
		}
	}
}

// latest is the largest number of a request that is still known.
func (s *state) latest(p int) uint8 {
	latest := max(s.claimOf(p).seq, s.backupDB.claim[p].seq)
	for i := range s.op {
		if s.op[i].at != opFree && int(s.op[i].pod) == p {
			latest = max(latest, s.op[i].seq)
		}
	}
	return latest
}

func (s *state) deafen(p int) {
	for i := range s.op {
		if s.op[i].at != opFree && int(s.op[i].pod) == p {
			s.op[i].conn = 0
		}
	}
}

func (s *state) failPoller(p int) {
	q := &s.pod[p]
	if q.poller == pollStaged {
		q.poller = pollFailedStaged
	} else {
		q.poller = pollFailed
	}
	q.gen = 0
	s.deafen(p)
}

// acknowledgeSteps: best effort; then the configuration is released to the runner, and the poller exits 0. In between the server may
// write the owner label (ackSteps).
func (m *machine) acknowledgeSteps(s *state, p int) {
	t := *s
	q, c := &t.pod[p], t.claimOf(p)
	if c.ack == 0 && q.shown&shownOwner == 0 && m.holds(c, q.gen) && (c.st == claimMinted || c.st == claimExecuting) { // CLAIM-15
		c.ack = 1
		m.happens("the poller acknowledges in", p, &t)
		if t, ok := m.unlucky(s, faultAckLost); ok {
			t.pod[p].poller, t.pod[p].gen = pollDone, 0
			m.chance("the acknowledgement is lost, and the configuration is released in", p, &t)
		}
		return
	}
	q.poller, q.gen = pollDone, 0
	m.happens("the configuration is released, and the poller exits in", p, &t)
}

func (m *machine) runnerSteps(s *state, p int) {
	q := &s.pod[p]
	if q.runner == runExited {
		return
	}
	released := q.poller.released() || m.without.singleShot && q.poller == pollStaged // a poller that continues has released, too
	switch {
	case q.runner == runWaiting && q.poller == pollDismissed:
		m.runnerExits(s, p, true, "the runner's container ends for want of work in")
	case q.runner == runWaiting && released:
		t := *s
		t.pod[p].runner = runConfigured
		m.add(true, "the runner is started with its configuration in", p, -1, q.jit, &t)
	case q.runner == runConfigured && s.reg[q.jit-1] == regOffline:
		t := *s
		t.reg[q.jit-1], t.pod[p].runner = regOnline, runOnline
		m.add(true, "the runner is online in", p, -1, q.jit, &t)
	case s.acquired(p):
		t := *s
		t.pod[p].worked = 1
		m.add(true, "the worker of its job starts in", p, s.jobOn(q.jit), q.jit, &t)
	case q.runner == runConfigured:
		m.runnerExits(s, p, true, "GitHub refuses the runner, which exits, in")
	case q.runner == runOnline && s.reg[q.jit-1] == regGone:
		m.runnerExits(s, p, true, "the runner exits in")
	}
	if q.runner == runHung {
		return
	}
	if t, ok := m.unlucky(s, faultRunner); ok {
		m.runnerExits(&t, p, false, "the runner's container crashes in")
	}
	if t, ok := m.unlucky(s, faultHang); ok {
		if s.busy(p) { // GitHub ends the job of a runner that has gone silent
			m.complete(&t, s.jobOn(q.jit))
		}
		t.pod[p].runner = runHung
		m.chance("the runner hangs for ever in", p, &t)
	}
}

func (m *machine) runnerExits(s *state, p int, fair bool, name string) {
	t := *s
	q := &t.pod[p]
	q.runner = runExited
	if q.jit != 0 && t.reg[q.jit-1] == regOnline {
		t.reg[q.jit-1] = regOffline
	}
	m.add(fair, name, p, -1, 0, &t)
}

// statusSteps: the API server catches up.
func (m *machine) statusSteps(s *state, p int) {
	q := &s.pod[p]
	truth := q.truth()
	if missing := truth &^ q.shown; missing != 0 {
		for _, v := range [...]shown{shownExited0 | shownFailed, shownNotReady, shownRunnerEnd} {
			if missing&v == 0 {
				continue
			}
			t := *s
			t.pod[p].shown |= truth & v
			if v == shownRunnerEnd {
				t.pod[p].shown &^= shownNotReady
			}
			m.happens("its status catches up, of", p, &t)
		}
	}
}

// nodeSteps: the node disappears, with everything on it, or only from view.
func (m *machine) nodeSteps(s *state, p int) {
	t, ok := m.unlucky(s, faultNode)
	if !ok {
		return
	}
	t.pod[p].lost = 1
	m.chance("the node goes out of sight, of", p, &t)
	if !s.pod[p].poller.ended() {
		t.failPoller(p)
	}
	m.runnerExits(&t, p, false, "the node breaks, of")
}

// ackSteps: what the server does on seeing the pod. Only exit 0 acknowledges.
func (m *machine) ackSteps(s *state, p int) {
	q, c := &s.pod[p], s.claimOf(p)
	ended := q.shown&shownExited0 != 0 || m.without.exitCode && q.shown&shownFailed != 0
	if ended && c.ack == 0 && (c.st == claimMinted || c.st == claimExecuting) {
		t := *s
		t.claimOf(p).ack = 1
		m.happens("the poller's end is taken as acknowledgement, of", p, &t)
	}
	// The label follows an acknowledgement, while the pod waits for it (TEN-8).
	if q.life == up && q.shown&shownOwner == 0 && m.live(c) && c.ack == 1 && (q.poller == pollStaged && m.holds(c, q.gen) || m.without.labelInTime) {
		t := *s
		t.pod[p].shown |= shownOwner
		m.happens("the owner label is stamped on", p, &t)
	}
}

func (s *state) vanish(p int) {
	s.deafen(p)
	s.pod[p] = pod{life: gone}
}

// forgetSteps: a row that is spent or retired goes once an uncached read proves that its UID is gone (EXCL-1).
func (m *machine) forgetSteps(s *state, p int) {
	c := s.claimOf(p)
	if c.st == claimSpent || c.st == claimRetired {
		t := *s
		*t.claimOf(p) = claim{}
		m.happens("the row is forgotten, of", p, &t)
	}
}
