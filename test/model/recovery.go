package model

import "github.com/bullpen-ci/bullpen/internal/fleet"

// The recovery table as it is specified. No product code is behind this file yet, except for the adoption of runners
// and for the generations that every release takes. When the passes exist, their verdicts belong in rules.
//
// Ages are left out: a row that is guarded by one may fire at any moment, so that what holds does so whatever the
// thresholds are. One pass works on one pod at a time.

// recovery is a release under way: it has taken a generation and asks GitHub.
type recovery struct {
	kind    recoveryKind
	pod     uint8
	gen     uint8
	removed uint8 // 1: the registrations are gone, the row is not written yet
}

type recoveryKind uint8

const (
	recoverNothing recoveryKind = iota
	staleClaim
	orphanedRunner
	agentNeverRegistered
	idleRunner
	podMissingClaim
	orphanedPod
	lostPod // the product's own, in internal/dispatch's lost.go
)

var recoveryNames = [...]string{
	staleClaim: "stale_claim:", orphanedRunner: "orphaned_runner:", agentNeverRegistered: "agent_never_registered:",
	idleRunner: "idle_runner:", podMissingClaim: "pod_missing_claim:", orphanedPod: "orphaned_stamped_pod:",
	lostPod: "the claim is to be released of the lost",
}

func (m *machine) recoverySteps(s *state) {
	for j := range m.jobs {
		m.jobRecovery(s, j)
	}
	for p := range m.pods {
		if s.rec.kind == recoverNothing {
			m.evidence(s, p)
		}
		if s.pod[p].life != gone {
			m.closeRegistrations(s, p)
		}
		if m.without.rowsStay && s.claimOf(p).st != claimNone && s.pod[p].life != gone { // EXCL-1
			t := *s
			m.moveJob(&t, t.claimOf(p).job, jobEvRelease)
			*t.claimOf(p) = claim{}
			m.happens("a row is removed for its age, of", p, &t)
		}
	}
}

// evidence begins what the claim of a pod gives reason for.
func (m *machine) evidence(s *state, p int) {
	c, q := s.claimOf(p), &s.pod[p]
	readable := s.scopeDown == 0
	acked := c.st == claimMinted && c.ack == 1
	if (c.st == claimClaimed || c.st == claimMinted) && c.ack == 0 {
		m.begin(s, p, staleClaim)
	}
	if (c.st == claimMinted || c.st == claimExecuting) && c.job != 0 && s.job[c.job-1] == ghQueued && readable && !s.online(p) {
		m.begin(s, p, orphanedRunner)
	}
	if acked && q.life != gone && q.shown&shownRunnerEnd == 0 && readable && !s.online(p) {
		m.begin(s, p, agentNeverRegistered)
	}
	if acked && readable && !s.busy(p) {
		m.begin(s, p, idleRunner)
	}
	if q.life == gone && (m.live(c) || s.open(p)) {
		m.begin(s, p, podMissingClaim)
	}
	if m.orphaned(s, p) {
		m.begin(s, p, orphanedPod)
	}
}

// begin takes a generation, so that every other actor's writes are void from here on (CLAIM-15).
func (m *machine) begin(s *state, p int, kind recoveryKind) {
	t := *s
	c := t.claimOf(p)
	if m.live(c) {
		c.gen = m.fresh(&t, p)
	}
	t.rec = recovery{kind: kind, pod: uint8(p), gen: c.gen} //nolint:gosec // at most maxPods
	m.happens(recoveryNames[kind], p, &t)
}

func (m *machine) releaseSteps(s *state) {
	p := int(s.rec.pod)
	if t, ok := m.unlucky(s, faultCrash); ok {
		t.rec = recovery{}
		m.chance("the recovering replica crashes, with", p, &t)
	}
	if s.rec.removed == 1 {
		t := *s
		m.release(&t, p)
		t.rec = recovery{}
		m.happens("the claim is released, of", p, &t)
		return
	}
	if t, ok := m.unlucky(s, faultRemovalTimeout); ok && s.open(p) {
		rows := t.db.reg
		m.remove(&t, p, s.rec.kind != lostPod)
		t.db.reg, t.rec = rows, recovery{}
		m.chance("recovery's removal times out after it has worked, of", p, &t)
	}
	t := *s
	result := removedAll
	if !m.without.removal { // EXCL-6
		result = m.remove(&t, p, s.rec.kind != lostPod)
	}
	if result == removedAll {
		t.rec.removed = 1
		m.happens("recovery has removed the registrations of", p, &t)
	} else {
		t.rec = recovery{}
		m.happens("recovery keeps, GitHub calls it busy or says nothing, ", p, &t)
	}
}

// release ends the claim, if it is still the one that the pass began with.
func (m *machine) release(t *state, p int) {
	c := t.claimOf(p)
	if t.rec.kind == orphanedPod && !m.live(c) && t.pod[p].life != gone {
		m.moveClaim(c, evRetire)
		c.proof = 1
		return
	}
	if !m.live(c) || !m.holds(c, t.rec.gen) {
		return
	}
	if c.st == claimExecuting && t.rec.kind != orphanedRunner && t.rec.kind != podMissingClaim && t.rec.kind != lostPod {
		return
	}
	job := c.job
	if t.db.reg[p*mints] == rowNone && t.db.reg[p*mints+1] == rowNone && c.st == claimClaimed {
		m.moveClaim(c, evUnclaim)
	} else if m.moveClaim(c, evRelease) {
		c.proof = 1
	}
	if job != 0 && t.db.job[job-1] == jobExecuting && t.job[job-1] == ghQueued {
		t.db.job[job-1] = jobQueued // GitHub's word: it never ran
		return
	}
	m.moveJob(t, job, jobEvRelease)
}

// orphaned is the evidence of orphaned_stamped_pod: the pod shows any sign of work, or its row is spent, nobody has a
// claim, and nothing is proven yet. A runner that is no longer ready counts: that may be the last that was seen of a
// retired pod whose node then went.
func (m *machine) orphaned(s *state, p int) bool {
	c, q := s.claimOf(p), &s.pod[p]
	used := q.shown&shownOwner != 0 || q.shown.pollerEnded() || q.shown&shownNotReady != 0 || c.st == claimSpent
	return used && q.life != gone && !m.live(c) && c.proof == 0 && !q.shown.terminal()
}

// closeRegistrations: rows of a claim that is over are proven gone.
func (m *machine) closeRegistrations(s *state, p int) {
	c := s.claimOf(p)
	if m.live(c) || !s.open(p) || s.scopeDown == 1 {
		return
	}
	t := *s
	if m.remove(&t, p, false) == removedAll {
		m.happens("the registrations of an ended claim are proven gone, of", p, &t)
	}
}

// jobRecovery: what GitHub's own list of jobs and runners says.
func (m *machine) jobRecovery(s *state, j int) {
	truth, row, reg := s.job[j], s.db.job[j], s.exec[j]
	if s.scopeDown == 0 && truth.ended() && !m.d.terminal[row] && row != jobAbsent {
		t := *s
		m.record(&t, s.ending(j), j, reg)
		m.add(true, "orphan_completed, queued_reaped: GitHub says that a job has ended", -1, j, reg, &t)
	}
	if s.scopeDown == 0 && truth == ghRunning && s.pod[podOf(reg)].life != gone {
		m.runningRecovery(s, j, reg)
	}
	if truth == ghQueued && row == jobAbsent && s.hooks[j]&hookQueued == 0 {
		t := *s
		m.record(&t, eventQueued, j, 0)
		m.add(true, "the sweep of GitHub's queue finds a job", -1, j, 0, &t)
	}
	if fleet.JobStates()[row] == fleet.JobClaimed || row == jobMinted {
		m.unclaimedJob(s, j)
	}
}

// runningRecovery: unstarted_execution and unknown_runner.
func (m *machine) runningRecovery(s *state, j int, reg uint8) {
	t := *s
	m.record(&t, eventStarted, j, reg)
	if t != *s {
		m.add(true, "unstarted_execution: GitHub's list has a runner busy, of", podOf(reg), j, reg, &t)
	}
	c := s.claimOf(podOf(reg))
	if !m.live(c) && s.db.adopt&bit(reg) == 0 {
		t := *s
		t.db.adopt |= bit(reg)
		m.add(true, "unknown_runner: GitHub's list has a runner busy that nobody claims, of", podOf(reg), j, reg, &t)
	}
}

func (m *machine) unclaimedJob(s *state, j int) {
	for p := range s.db.claim {
		if m.live(&s.db.claim[p]) && s.db.claim[p].job == jobRef(j) {
			return
		}
	}
	t := *s
	if m.moveJob(&t, jobRef(j), jobEvRelease) {
		m.add(true, "unclaimed_job: nobody has it, it is queued again", -1, j, 0, &t)
	}
}
