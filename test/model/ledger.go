package model

import "github.com/bullpen-ci/bullpen/internal/fleet"

// The effects of the server's transactions on its rows.

func (m *machine) live(c *claim) bool { return m.d.live[c.st] }

func (m *machine) liveClaims(s *state) int {
	n := 0
	for p := range s.db.claim {
		if m.live(&s.db.claim[p]) {
			n++
		}
	}
	return n
}

// moveClaim applies an event to a row, if the table moves it.
func (m *machine) moveClaim(c *claim, event int) bool {
	next := m.d.claim[c.st][event]
	if next.outcome == fleet.Move {
		c.st = next.next
	}
	return next.outcome != fleet.Refuse
}

func (m *machine) moveJob(s *state, job uint8, event int) bool {
	if job == 0 {
		return false
	}
	next := m.d.job[s.db.job[job-1]][event]
	if next.outcome == fleet.Move {
		s.db.job[job-1] = next.next
	}
	return next.outcome == fleet.Move
}

// fresh is an unused generation of the pod's row: later than everything the clock has shown.
func (m *machine) fresh(s *state, p int) uint8 {
	latest := max(s.db.claim[p].gen, s.backupDB.claim[p].gen, s.pod[p].gen)
	for i := range s.op {
		if int(s.op[i].pod) == p {
			latest = max(latest, s.op[i].gen)
		}
	}
	if int(s.rec.pod) == p {
		latest = max(latest, s.rec.gen)
	}
	return m.nextGeneration(s.db.claim[p].gen, latest)
}

// record applies a workflow_job event: a webhook's, or what recovery has read of a job. reg is 0 when it names no
// runner.
func (m *machine) record(s *state, kind eventKind, j int, reg uint8) {
	q := question{kind: kind, job: jobRef(j), reg: reg, state: s.db.job[j]}
	if kind != eventQueued {
		for p := range s.db.claim {
			c := &s.db.claim[p]
			if reg != 0 && c.st != claimNone && c.name == reg {
				q.byRunner, q.runnerSt, q.runnerOf = uint8(p+1), c.st, c.job //nolint:gosec // at most maxPods
			}
			if m.live(c) && c.job == jobRef(j) {
				q.byJob, q.jobSt = uint8(p+1), c.st //nolint:gosec // at most maxPods
			}
		}
	}
	m.apply(s, j, reg, m.d.resolved(q))
}

func (m *machine) apply(s *state, j int, reg uint8, c change) {
	if c.move {
		s.db.job[j] = c.state
	}
	if c.unbind != 0 {
		s.db.claim[c.unbind-1].job = 0
	}
	if c.execute != 0 {
		row := &s.db.claim[c.execute-1]
		if m.moveClaim(row, evStarted) {
			row.job, row.ack = jobRef(j), 1
		}
	}
	if c.spend != 0 {
		row := &s.db.claim[c.spend-1]
		if m.moveClaim(row, evCompleted) {
			row.job, row.proof = jobRef(j), 1
			if s.db.reg[reg-1] == rowOpen {
				s.db.reg[reg-1] = rowGone
			}
		}
	}
	m.moveJob(s, c.requeue, jobEvRelease)
	if c.unbind != 0 {
		m.takeNext(s, int(c.unbind-1))
	}
	if c.adopt != 0 {
		s.db.adopt |= bit(reg)
	}
}

// takeNext gives a live claim whose job went elsewhere the oldest queued job of its lane.
func (m *machine) takeNext(s *state, p int) {
	row := &s.db.claim[p]
	if !m.live(row) || row.st == claimExecuting {
		return
	}
	event := jobEvTransfer
	if row.st == claimClaimed {
		event = jobEvClaim
	}
	for j := range s.db.job {
		if s.db.job[j] == jobQueued {
			if m.moveJob(s, jobRef(j), event) {
				row.job = jobRef(j)
			}
			return
		}
	}
}

// adopt makes the pod of a runner busy again that GitHub has confirmed to run its job (CLAIM-13).
func (m *machine) adopt(s *state, reg uint8) bool {
	j := s.jobOn(reg)
	if j < 0 || m.d.terminal[s.db.job[j]] || s.db.job[j] == jobAbsent {
		return false // late: the job has ended
	}
	p := podOf(reg)
	row := &s.db.claim[p]
	was := *row
	if next := m.d.claim[row.st][evAdopt]; next.outcome != fleet.Move {
		return false
	}
	m.moveClaim(row, evAdopt)
	other := -1
	for q := range s.db.claim {
		if q != p && m.live(&s.db.claim[q]) && s.db.claim[q].job == jobRef(j) {
			other, s.db.claim[q].job = q, 0
		}
	}
	*row = claim{st: row.st, gen: was.gen, job: jobRef(j), name: reg, ack: 1}
	row.gen = m.fresh(s, p)
	if other >= 0 {
		m.takeNext(s, other)
	}
	m.moveJob(s, jobRef(j), jobEvStarted)
	s.db.reg[reg-1] = rowOpen
	return true
}

// jobOn is the job that GitHub gave to the registration; -1 for none.
func (s *state) jobOn(reg uint8) int {
	for j := range s.exec {
		if s.exec[j] == reg {
			return j
		}
	}
	return -1
}

type removed int

const (
	removedAll removed = iota
	removedBusy
	removedUnknown
)

// remove asks GitHub to remove the registrations that the ledger holds open, and with list also those that GitHub's list
// shows for the pod. DELETE is atomic with GitHub's assignment of a job.
func (m *machine) remove(s *state, p int, list bool) removed {
	result := removedAll
	s.eachReg(p, func(reg uint8) bool {
		truth := &s.reg[reg-1]
		if s.db.reg[reg-1] != rowOpen && (!list || !truth.alive()) {
			return true
		}
		switch {
		case s.scopeDown == 1 && !m.without.controlRead: // EXCL-6
			result = removedUnknown
			return false
		case s.scopeDown == 1:
		case *truth == regBusy && s.lag == 1 && !m.refuses: // its 422 is no lock
			*truth = regShadow
		case *truth == regBusy:
			result = removedBusy
			return false
		case truth.alive():
			*truth = regGone
		}
		s.db.reg[reg-1] = rowGone
		return true
	})
	return result
}
