package model

// GitHub: registrations, assignment of jobs, webhooks.

func (m *machine) githubSteps(s *state) {
	for p := range m.pods {
		s.eachReg(p, func(reg uint8) bool {
			m.registrationSteps(s, p, reg)
			return true
		})
	}
	for j := range m.jobs {
		m.jobSteps(s, j)
		m.hookSteps(s, j)
	}
	if s.lag == 1 {
		t := *s
		t.lag = 0
		m.happens("GitHub's word catches up", -1, &t)
	} else if t, ok := m.unlucky(s, faultLag); ok {
		t.lag = 1
		m.chance("GitHub's word lags from here on, a removal's too", -1, &t)
	}
	if s.scopeDown == 1 {
		t := *s
		t.scopeDown = 0
		m.happens("GitHub's scope is readable again", -1, &t)
	} else if t, ok := m.unlucky(s, faultScope); ok {
		t.scopeDown = 1
		m.chance("GitHub answers 403 and 404 for the whole scope", -1, &t)
	}
}

func (m *machine) registrationSteps(s *state, p int, reg uint8) {
	switch s.reg[reg-1] {
	case regPending:
		t := *s
		t.reg[reg-1] = regOffline
		m.add(true, "GitHub registers a runner for", p, -1, reg, &t)
		if !s.waits(reg) {
			t := *s
			t.reg[reg-1] = regGone
			m.add(true, "the mint never reached GitHub, for", p, -1, reg, &t)
		}
	case regOnline:
		if s.pod[p].runner != runOnline || s.pod[p].jit != reg {
			return
		}
		for j := range m.jobs {
			if s.job[j] == ghQueued {
				t := *s
				t.job[j], t.exec[j], t.reg[reg-1] = ghRunning, reg, regBusy
				t.hooks[j] |= hookStarted
				m.add(true, "a job is acquired by the runner of", p, j, reg, &t)
			}
		}
	}
}

// waits: a request waits for GitHub's answer about the registration.
func (s *state) waits(reg uint8) bool {
	for i := range s.op {
		if s.op[i].at == opMint && s.op[i].reg == reg {
			return true
		}
	}
	return false
}

func (m *machine) complete(t *state, j int) {
	t.job[j], t.reg[t.exec[j]-1] = ghCompleted, regGone
	t.hooks[j] |= hookCompleted
}

func (m *machine) jobSteps(s *state, j int) {
	switch s.job[j] {
	case ghRunning:
		if s.acquired(podOf(s.exec[j])) {
			return // its worker starts first
		}
		t := *s
		m.complete(&t, j)
		m.add(true, "a job completes on the runner of", podOf(s.exec[j]), j, s.exec[j], &t)
	case ghQueued:
		if t, ok := m.unlucky(s, faultCancel); ok {
			t.job[j] = ghCancelled
			t.hooks[j] |= hookCompleted
			m.add(false, "a user cancels a queued job", -1, j, 0, &t)
		}
	}
}

func (m *machine) hookSteps(s *state, j int) {
	for _, hook := range [...]uint8{hookQueued, hookStarted, hookCompleted} {
		if s.hooks[j]&hook == 0 {
			continue
		}
		reg, p := s.exec[j], -1
		if reg != 0 {
			p = podOf(reg)
		}
		t := *s
		name := "webhook queued"
		switch hook {
		case hookQueued:
			m.record(&t, eventQueued, j, 0)
		case hookStarted:
			name = "webhook in_progress, naming the runner of"
			m.record(&t, eventStarted, j, reg)
		default:
			name = "webhook completed, naming the runner of"
			m.record(&t, s.ending(j), j, reg)
		}
		if u, ok := m.unlucky(&t, faultWebhookTwice); ok && hook != hookQueued {
			m.add(false, "comes twice: "+name, p, j, reg, &u)
		}
		t.hooks[j] &^= hook
		e := m.add(true, name, p, j, reg, &t)
		if hook == hookStarted && m.overlooked(&t, reg) {
			e.broken = "CLAIM-13 a runner works that no claim explains, and nobody asks about it"
		}
		if t, ok := m.unlucky(s, faultWebhookLost); ok {
			t.hooks[j] &^= hook
			m.add(false, "LOST: "+name, p, j, reg, &t)
		}
	}
}

// overlooked: a runner is busy, no account is charged for it, and no adoption is on its way.
func (m *machine) overlooked(s *state, reg uint8) bool {
	p := podOf(reg)
	return s.reg[reg-1] == regBusy && s.pod[p].life != gone && !m.live(s.claimOf(p)) && s.db.adopt&bit(reg) == 0 &&
		!m.d.terminal[s.db.job[s.jobOn(reg)]]
}

// ending is the event that reports a job's end.
func (s *state) ending(j int) eventKind {
	if s.job[j] == ghCancelled {
		return eventCancelled
	}
	return eventCompleted
}

// adoptionSteps: a runner that GitHub named and no live claim explains is adopted when GitHub confirms that it runs
// now (CLAIM-13): internal/server/dispatch's adopt.go.
func (m *machine) adoptionSteps(s *state) {
	for p := range m.pods {
		s.eachReg(p, func(reg uint8) bool {
			if s.db.adopt&bit(reg) != 0 {
				m.adoptionStepsOf(s, p, reg)
			}
			return true
		})
	}
}

func (m *machine) adoptionStepsOf(s *state, p int, reg uint8) {
	t := *s
	switch {
	case s.confirmed&bit(reg) == 0 && s.scopeDown == 1 && !m.without.confirmation: // unknown: it is asked again
	case s.confirmed&bit(reg) == 0 && s.lag == 1 && s.reg[reg-1] == regBusy && !m.without.confirmation: // it is asked again
	case s.confirmed&bit(reg) == 0 && (s.reg[reg-1] == regBusy || m.without.confirmation):
		t.confirmed |= bit(reg)
		m.add(true, "GitHub calls the runner busy of", p, -1, reg, &t)
	case s.confirmed&bit(reg) == 0 && s.reg[reg-1] >= regGone:
		t.db.adopt &^= bit(reg)
		m.add(true, "no adoption, GitHub has no such runner, of", p, -1, reg, &t)
	case s.confirmed&bit(reg) != 0 && s.pod[p].life != gone:
		t.db.adopt &^= bit(reg)
		t.confirmed &^= bit(reg)
		j := s.jobOn(reg)
		adopted := m.adopt(&t, reg)
		e := m.add(true, "the runner is adopted, of", p, j, reg, &t)
		if !adopted && s.reg[reg-1] == regBusy && !m.live(s.claimOf(p)) && !m.d.terminal[s.db.job[j]] {
			e.broken = "CLAIM-13 a runner that works was not adopted"
		}
	}
}
