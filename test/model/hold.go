package model

// The hold after a restore (CLAIM-17): internal/server/restore/epoch and internal/server/restore/rebuild. Every statement
// detects an older database from the first on, because each checks the epoch that its replica has seen. The time of the
// detection is written down, so that a crash can forget nothing. Claims are rebuilt in one step with the end of the hold: a
// replica that has lost its turn, or that wakes up when the hold is over, is refused and changes nothing (ADR 0019).

// frozen: statements that claim, take over, mint, retire or release are refused.
func (m *machine) frozen(s *state) bool { return s.backup == backupHeld && !m.without.refusal }

// holdSteps end the hold. It lasts longer than the lag of labels, status and GitHub's flags, and than a replica works on
// what it had begun; GitHub has to be readable.
func (m *machine) holdSteps(s *state) {
	if s.backup != backupHeld || s.scopeDown == 1 || !m.settled(s) {
		return
	}
	for i := range s.op {
		if s.op[i].at >= opServe {
			return
		}
	}
	t := *s
	t.backup = backupRestored
	if !m.without.rebuild {
		for p := range m.pods {
			m.rebuild(&t, p)
		}
		for p := range m.pods {
			m.bindJob(&t, p)
		}
	}
	m.happens("claims are rebuilt, and the hold is over", -1, &t)
}

// rebuild gives a pod whose registrations GitHub shows its claim back: Store.Rebuild.
func (m *machine) rebuild(s *state, p int) {
	q, c := &s.pod[p], s.claimOf(p)
	if q.life == gone {
		return
	}
	best := uint8(0)
	s.eachReg(p, func(reg uint8) bool {
		if s.reg[reg-1].alive() {
			s.db.reg[reg-1] = rowOpen
			if best == 0 || s.reg[reg-1] >= s.reg[best-1] {
				best = reg
			}
		}
		return true
	})
	if best == 0 {
		return
	}
	truth := s.reg[best-1]
	arrived := truth != regOffline || q.shown&shownExited0 != 0
	switch {
	case m.live(c):
		name := c.name
		if name == 0 || !s.reg[name-1].alive() || truth == regBusy {
			name = best
		}
		if c.st == claimClaimed {
			m.moveClaim(c, evMint)
			m.moveJob(s, c.job, jobEvMint)
		}
		c.name, c.gen = name, m.fresh(s, p)
	case truth == regBusy:
		m.moveClaim(c, evAdopt)
		*c = claim{st: c.st, gen: m.fresh(s, p), name: best}
	case c.st == claimNone:
		*c = claim{st: claimMinted, gen: m.fresh(s, p), name: best}
	default: // its work is over, and an idle registration of it is recovery's to remove
		return
	}
	if arrived {
		c.ack = 1
	}
}

// bindJob records the job of a busy runner as GitHub's list of jobs shows it.
func (m *machine) bindJob(s *state, p int) {
	s.eachReg(p, func(reg uint8) bool {
		if j := s.jobOn(reg); s.reg[reg-1] == regBusy && j >= 0 && s.job[j] == ghRunning {
			m.record(s, eventStarted, j, reg)
		}
		return true
	})
}
