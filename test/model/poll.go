package model

import "github.com/bullpen-ci/bullpen/internal/server/dispatch"

// A request of a poller at a server replica: internal/server/dispatch's poll.go, matcher.go, takeover.go and dispatcher.go.

// hangUp ends a request without an answer; a poller that still listens asks again.
func (s *state) hangUp(i int) {
	o := &s.op[i]
	if o.at != opFree && o.conn == 1 && s.pod[o.pod].poller == pollWaiting {
		s.pod[o.pod].poller = pollIdle
	}
	*o = op{}
}

// dismiss answers 410.
func (s *state) dismiss(i int) {
	o := &s.op[i]
	if o.conn == 1 && s.pod[o.pod].poller == pollWaiting {
		s.pod[o.pod].poller = pollDismissed
	}
	*o = op{}
}

func (m *machine) opSteps(s *state, i int) {
	o := &s.op[i]
	p := int(o.pod)
	if t, ok := m.unlucky(s, faultCrash); ok {
		t.hangUp(i)
		m.chance("a server replica crashes that served", p, &t)
	}
	if o.conn == 0 && (o.at == opRead || o.at == opMatch) {
		t := *s
		t.hangUp(i)
		m.happens("the server notices that nobody listens to a request of", p, &t)
		if m.noticed && o.at == opRead {
			return
		}
	}
	switch o.at {
	case opRead:
		m.readSteps(s, i)
	case opMatch:
		m.matchSteps(s, i)
	case opServe:
		m.serveSteps(s, i)
	case opRemove:
		m.removeSteps(s, i)
	case opIntend:
		m.intendSteps(s, i)
	case opMint:
		m.mintSteps(s, i)
	case opAnswer:
		m.answerSteps(s, i)
	}
}

// step is what Decide says of the pod's row. Leases are untimed: one that is held may be over when it is checked.
func (m *machine) step(s *state, i int, leased uint8) dispatch.Step {
	p := s.op[i].pod
	c := s.claimOf(int(p))
	late := uint8(0)
	if s.op[i].seq != 0 && c.seq > s.op[i].seq {
		late = 1
	}
	return m.d.steps[c.st][s.pod[p].seen][c.ack][leased][late]
}

func (m *machine) readSteps(s *state, i int) {
	p := int(s.op[i].pod)
	t := *s
	if s.pod[p].life == gone {
		t.hangUp(i)
		m.happens("503, it has gone:", p, &t)
		return
	}
	if m.frozen(s) { // CLAIM-17
		t.hangUp(i)
		m.happens("204, the ledger is frozen:", p, &t)
		return
	}
	leased := uint8(0)
	if m.leased && m.minting(s, i) {
		leased = 1
	}
	switch m.step(s, i, leased) {
	case dispatch.StepGone:
		t.dismiss(i)
		m.happens("410:", p, &t)
	case dispatch.StepMatch:
		t.op[i].at = opMatch
		m.served(s, p, m.happens("the poll waits for a job, of", p, &t))
	case dispatch.StepTakeOver:
		c := t.claimOf(p)
		if c.st != claimClaimed && c.st != claimMinted || c.ack == 1 { // the statement's own condition
			t.hangUp(i)
			m.happens("there is nothing to take over, of", p, &t)
			return
		}
		c.gen, c.seq = m.fresh(&t, p), max(c.seq, s.op[i].seq)
		t.op[i].gen, t.op[i].at = c.gen, opRemove
		m.served(s, p, m.happens("the poll takes the claim over, of", p, &t))
	case dispatch.StepLate:
		t.hangUp(i)
		m.happens("503, a later request of it was served:", p, &t)
	case dispatch.StepAwait: // that is what leased says
		t.hangUp(i)
		m.happens("204, somebody mints, or is thought to, for", p, &t)
	}
	if leased == 0 && m.step(s, i, 1) == dispatch.StepAwait && m.minting(s, i) {
		t := *s
		t.hangUp(i)
		m.happens("204, another request mints for it:", p, &t)
	}
}

// served: the server continues with a poll that it has to refuse if it sees the pod's deletion (EXCL-5).
func (m *machine) served(s *state, p int, e *step) {
	if s.pod[p].seen == 1 {
		e.broken = "EXCL-5 a poll of a pod that is being deleted was served"
	}
}

// minting: another request holds the lease of the claim.
func (m *machine) minting(s *state, i int) bool {
	o := &s.op[i]
	for k := range s.op {
		if k != i && s.op[k].at >= opServe && s.op[k].at < opAnswer && s.op[k].pod == o.pod && s.op[k].gen == s.claimOf(int(o.pod)).gen {
			return true
		}
	}
	return false
}

func (m *machine) matchSteps(s *state, i int) {
	o := &s.op[i]
	p := int(o.pod)
	t := *s
	if step := m.step(s, i, 0); step != dispatch.StepMatch { // its row, or the pod, has changed: it looks again
		switch {
		case step == dispatch.StepGone:
			t.dismiss(i)
			m.happens("410:", p, &t)
		case m.without.matched:
			m.readSteps(s, i)
		default:
			t.hangUp(i)
			m.happens("503, the claim was made for another request, of", p, &t)
		}
	} else {
		t.hangUp(i)
		m.happens("204, no work:", p, &t)
	}
	queued := 0
	for j := range s.db.job {
		if s.db.job[j] == jobQueued {
			queued |= 1 << j
		}
	}
	j := int(m.d.chosen[queued])
	live := m.liveClaims(s)
	if m.frozen(s) { // CLAIM-17
		return
	}
	if j < 0 || live > maxPods || !m.d.room[live] {
		return
	}
	t = *s
	c := t.claimOf(p)
	if m.moveClaim(c, evClaim); c.st == s.claimOf(p).st {
		return // EXCL-1: another row is there
	}
	*c = claim{st: c.st, gen: c.gen, job: jobRef(j), seq: s.op[i].seq}
	c.gen = m.fresh(&t, p)
	m.moveJob(&t, jobRef(j), jobEvClaim)
	if reg := m.intend(&t, p); reg != 0 { // the name is written in the same statement
		t.op[i].reg = reg
	}
	t.op[i].at, t.op[i].gen = opServe, c.gen
	e := m.add(true, "a claim is made for", p, j, t.op[i].reg, &t)
	switch {
	case s.claimOf(p).st == claimSpent || s.claimOf(p).st == claimRetired:
		e.broken = "EXCL-5 a spent or retired pod was claimed"
	case s.claimOf(p).st != claimNone:
		e.broken = "EXCL-1 a pod was claimed that somebody owned already"
	case live >= m.budget:
		e.broken = "CLAIM-5 the account's budget was exceeded"
	}
}

// intend writes down the next name of a pod; 0 if the model's names are used up.
func (m *machine) intend(s *state, p int) (name uint8) {
	s.eachReg(p, func(reg uint8) bool {
		if s.reg[reg-1] == regNone && s.db.reg[reg-1] == rowNone && !s.carries(reg) {
			name = reg
		}
		return name == 0
	})
	if name != 0 {
		s.db.reg[name-1] = rowOpen
		s.claimOf(p).name = name
	}
	return name
}

// carries: a request is about to ask for that registration. Its row may be lost, by a restore.
func (s *state) carries(reg uint8) bool {
	return s.op[0].reg == reg || s.op[1].reg == reg
}

func (m *machine) serveSteps(s *state, i int) {
	o := &s.op[i]
	p := int(o.pod)
	deleting := s.pod[p].seen == 1 || s.pod[p].life == gone
	if deleting || o.conn == 0 || o.reg == 0 {
		t := *s
		m.unclaim(&t, i)
		m.happens("the claim is given back before GitHub is asked, of", p, &t)
	}
	if o.reg == 0 || deleting && !m.without.serveCheck { // EXCL-5
		return
	}
	t := *s
	t.reg[o.reg-1] = regPending
	t.op[i].at = opMint
	e := m.add(true, "GitHub is asked for a registration, for", p, -1, o.reg, &t)
	if deleting {
		e.broken = "EXCL-5 a registration was minted for a pod that is being deleted"
	}
}

// unclaim gives a claim back whose mint definitely never happened.
func (m *machine) unclaim(t *state, i int) {
	o := &t.op[i]
	p := int(o.pod)
	if o.reg != 0 && t.db.reg[o.reg-1] == rowOpen {
		t.db.reg[o.reg-1] = rowGone
		if t.reg[o.reg-1] == regNone {
			t.reg[o.reg-1] = regGone
		}
	}
	c := t.claimOf(p)
	if m.holds(c, o.gen) && c.st == claimClaimed && m.moveClaim(c, evUnclaim) {
		m.moveJob(t, c.job, jobEvRelease)
	}
	t.hangUp(i)
}

// holds: the generation still holds the claim (CLAIM-15).
func (m *machine) holds(c *claim, gen uint8) bool { return c.gen == gen || m.without.generation }

func (m *machine) removeSteps(s *state, i int) {
	o := &s.op[i]
	p := int(o.pod)
	if !m.holds(s.claimOf(p), o.gen) && !m.without.overtaken {
		// CLAIM-15: it asks only about registrations older than its own. Its successor must remove those as well, so whether it does makes
		// no difference.
		t := *s
		t.op[i].at = opIntend
		m.happens("nothing is left to remove for a replica that was overtaken, of", p, &t)
		return
	}
	if t, ok := m.unlucky(s, faultRemovalTimeout); ok && s.open(p) {
		rows := t.db.reg
		m.remove(&t, p, false)
		t.db.reg = rows
		t.hangUp(i)
		m.chance("removing the earlier registration times out after it has worked, for", p, &t)
	}
	t := *s
	switch m.remove(&t, p, false) {
	case removedAll:
		t.op[i].at = opIntend
		m.happens("earlier registrations are removed, of", p, &t)
	case removedBusy:
		if m.without.busyAnswer {
			t.op[i].at = opIntend
			m.happens("422 is overlooked, for", p, &t)
			return
		}
		c := t.claimOf(p)
		if m.holds(c, o.gen) && (c.st == claimMinted || c.st == claimExecuting) {
			c.ack = 1
		}
		t.dismiss(i)
		m.happens("422: the earlier configuration did arrive; 410:", p, &t)
	case removedUnknown:
		t.hangUp(i)
		m.happens("503, GitHub is not known to have removed the registration, of", p, &t)
	}
}

func (m *machine) intendSteps(s *state, i int) {
	o := &s.op[i]
	p := int(o.pod)
	t := *s
	c := t.claimOf(p)
	if !m.holds(c, o.gen) || c.st != claimClaimed && c.st != claimMinted || m.frozen(s) { // CLAIM-17
		t.hangUp(i)
		m.happens("503, the claim was lost before the mint, of", p, &t)
		return
	}
	reg := m.intend(&t, p)
	if reg == 0 {
		m.unclaim(&t, i)
		m.happens("GitHub refuses a further registration, for", p, &t)
		return
	}
	t.reg[reg-1] = regPending
	t.op[i].reg, t.op[i].at = reg, opMint
	m.add(true, "the name is written down and GitHub asked again, for", p, -1, reg, &t)
}

func (m *machine) mintSteps(s *state, i int) {
	o := &s.op[i]
	p := int(o.pod)
	if t, ok := m.unlucky(s, faultMintTimeout); ok {
		t.hangUp(i)
		m.add(false, "the mint times out, and nobody knows whether it worked, for", p, -1, o.reg, &t)
	}
	if s.reg[o.reg-1] == regPending {
		if t, ok := m.unlucky(s, faultMintRefused); ok {
			t.reg[o.reg-1] = regGone
			m.unclaim(&t, i)
			m.add(false, "GitHub refuses the mint, for", p, -1, o.reg, &t)
		}
		return
	}
	t := *s
	c := t.claimOf(p)
	if m.frozen(s) { // CLAIM-17: the statement is refused, and no pod has the configuration
		t.hangUp(i)
		m.add(true, "the record of the mint is refused, the ledger is frozen, for", p, -1, o.reg, &t)
		return
	}
	if !m.holds(c, o.gen) || c.st != claimClaimed && c.st != claimMinted { // CLAIM-15
		if s.reg[o.reg-1] == regOffline && s.scopeDown == 0 {
			t.reg[o.reg-1] = regGone
			if t.db.reg[o.reg-1] == rowOpen {
				t.db.reg[o.reg-1] = rowGone
			}
		}
		t.hangUp(i)
		m.add(true, "the claim was lost during the mint, the registration is removed, for", p, -1, o.reg, &t)
		return
	}
	m.moveClaim(c, evMint)
	m.moveJob(&t, c.job, jobEvMint)
	if c.name != 0 {
		t.db.reg[c.name-1] = rowOpen // also when it was searched for too early, and not found
	}
	if m.without.labelLast && t.pod[p].life == up {
		t.pod[p].shown |= shownOwner
	}
	t.op[i].at = opAnswer
	m.add(true, "the mint is recorded, for", p, -1, o.reg, &t)
}

func (m *machine) answerSteps(s *state, i int) {
	o := &s.op[i]
	p := int(o.pod)
	t := *s
	if o.conn == 0 || s.pod[p].poller != pollWaiting {
		t.hangUp(i)
		m.happens("the answer has no listener, of", p, &t)
		return
	}
	q := &t.pod[p]
	if q.shown&shownOwner != 0 {
		t.hangUp(i)
		m.happens("the answer is cut off by the owner label, of", p, &t)
		return
	}
	old := q.jit
	q.poller, q.jit, q.gen = pollStaged, o.reg, o.gen
	t.op[i] = op{}
	e := m.add(true, "the configuration arrives and is staged, at", p, -1, o.reg, &t)
	if old != 0 && old != o.reg && s.reg[old-1].alive() {
		e.broken = "CLAIM-7 two living configurations were delivered to one pod"
	}
}
