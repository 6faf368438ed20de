package model

// canonical replaces a state by the one that stands for all states equivalent to it, and reports whether the pods
// changed places: generations are named in the order of their holders, what will never be read again is cleared, and
// replicas and pods are interchangeable.
func (m *machine) canonical(s *state) (swapped bool) {
	for i := range s.op {
		if s.op[i].at == opFree {
			s.op[i] = op{}
		}
	}
	if s.rec.kind == recoverNothing {
		s.rec = recovery{}
	}
	for p := range m.pods {
		m.clearPod(s, p)
	}
	for j := range m.jobs {
		if s.hooks[j] == 0 && m.d.terminal[s.db.job[j]] && s.job[j].ended() && s.backup != backupTaken {
			s.exec[j] = 0
		}
	}
	m.renumber(s)
	m.orderRequests(s)
	m.renameGenerations(s)
	if m.pods < 2 || m.removable == 1 || m.stops == 1 {
		return false
	}
	t := s.exchanged()
	m.orderRequests(&t)
	m.renameGenerations(&t)
	if t.less(s) {
		*s = t
		return true
	}
	return false
}

// clearPod forgets what will never be read again.
func (m *machine) clearPod(s *state, p int) {
	q, c := &s.pod[p], s.claimOf(p)
	if !m.live(c) {
		*c = claim{st: c.st, proof: c.proof}
	}
	if b := &s.backupDB.claim[p]; !m.live(b) {
		*b = claim{st: b.st, proof: b.proof}
	}
	if q.runner == runExited && q.jit != 0 && !s.reg[q.jit-1].alive() {
		q.jit = 0
	}
	if q.runner == runExited {
		q.worked = 0
	}
	if q.life != up || !m.heeds(q) {
		q.term = 0
	}
	if q.life == gone {
		s.eachReg(p, func(reg uint8) bool {
			s.db.adopt &^= bit(reg)
			s.confirmed &^= bit(reg)
			return true
		})
	}
	s.eachReg(p, func(reg uint8) bool {
		if s.db.adopt&bit(reg) == 0 {
			s.confirmed &^= bit(reg)
		}
		if s.forgettable(p, reg) {
			s.reg[reg-1], s.db.reg[reg-1] = regNone, rowNone
			if c.name == reg {
				c.name = 0
			}
		}
		return true
	})
}

// forgettable: the registration is gone for every actor, so that its place can be taken by the next. The model bounds
// the registrations that matter at one time, not those of a life.
func (s *state) forgettable(p int, reg uint8) bool {
	return s.reg[reg-1] == regGone && s.db.reg[reg-1] != rowOpen && s.db.adopt&bit(reg) == 0 && s.pod[p].jit != reg &&
		!s.carries(reg) && s.jobOn(reg) < 0 && s.backup != backupTaken
}

func (m *machine) orderRequests(s *state) {
	if s.op[0].less(&s.op[1]) {
		s.op[0], s.op[1] = s.op[1], s.op[0]
	}
}

func (o *op) less(other *op) bool { return o.order() < other.order() }

func (o *op) order() uint64 {
	return uint64(o.at)<<32 | uint64(o.pod)<<24 | uint64(o.gen)<<16 | uint64(o.reg)<<8 | uint64(o.seq)<<1 | uint64(o.conn)
}

// renumber keeps of the requests' numbers what can still be asked: which of those under way come before which, and
// before the one that the claim was served for.
func (m *machine) renumber(s *state) {
	for p := range m.pods {
		was := s.op
		before := func(seq uint8) (n uint8) {
			for i := range was {
				if was[i].at != opFree && int(was[i].pod) == p && was[i].seq < seq {
					n++
				}
			}
			return n
		}
		for i := range s.op {
			if s.op[i].at != opFree && int(s.op[i].pod) == p && s.op[i].seq != 0 {
				s.op[i].seq = before(s.op[i].seq) + 1
			}
		}
		for _, c := range []*claim{s.claimOf(p), &s.backupDB.claim[p]} {
			if c.seq = before(c.seq); c.seq > 0 {
				c.seq++
			}
		}
	}
}

// renameGenerations: all that is ever asked of a generation is whether it is another's.
func (m *machine) renameGenerations(s *state) {
	for p := range m.pods {
		var names [16]uint8
		next := uint8(1)
		rename := func(gen *uint8) {
			if *gen == 0 {
				return
			}
			if names[*gen] == 0 {
				names[*gen] = next
				next++
			}
			*gen = names[*gen]
		}
		rename(&s.db.claim[p].gen)
		rename(&s.pod[p].gen)
		for i := range s.op {
			if s.op[i].at != opFree && int(s.op[i].pod) == p {
				rename(&s.op[i].gen)
			}
		}
		if s.rec.kind != recoverNothing && int(s.rec.pod) == p {
			rename(&s.rec.gen)
		}
		rename(&s.backupDB.claim[p].gen)
	}
}

// exchanged is the state with the pods' names exchanged.
func (s *state) exchanged() state {
	t := *s
	t.pod[0], t.pod[1] = s.pod[1], s.pod[0]
	for p := range t.pod {
		t.pod[p].jit = otherReg(t.pod[p].jit)
	}
	t.db.exchange()
	t.backupDB.exchange()
	for n := range mints {
		t.reg[n], t.reg[mints+n] = s.reg[mints+n], s.reg[n]
	}
	for j := range t.exec {
		t.exec[j] = otherReg(t.exec[j])
	}
	for i := range t.op {
		if t.op[i].at != opFree {
			t.op[i].pod = 1 - t.op[i].pod
			t.op[i].reg = otherReg(t.op[i].reg)
		}
	}
	if t.rec.kind != recoverNothing {
		t.rec.pod = 1 - t.rec.pod
	}
	t.confirmed = otherBits(t.confirmed)
	return t
}

func (l *ledger) exchange() {
	l.claim[0], l.claim[1] = l.claim[1], l.claim[0]
	for p := range l.claim {
		l.claim[p].name = otherReg(l.claim[p].name)
	}
	for n := range mints {
		l.reg[n], l.reg[mints+n] = l.reg[mints+n], l.reg[n]
	}
	l.adopt = otherBits(l.adopt)
}

func otherReg(reg uint8) uint8 {
	switch {
	case reg == 0:
		return 0
	case reg <= mints:
		return reg + mints
	default:
		return reg - mints
	}
}

func otherBits(bits uint8) uint8 { return bits&(1<<mints-1)<<mints | bits>>mints }
