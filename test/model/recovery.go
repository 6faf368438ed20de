package model

import (
	"github.com/bullpen-ci/bullpen/internal/fleet"
	table "github.com/bullpen-ci/bullpen/internal/server/recovery"
)

// The recovery passes: internal/server/recovery's Judge decides, on evidence made of the state; the actions are
// internal/server/dispatch's recover.go and lost.go. The queue's own passes are re-stated as they are specified. Ages are
// left out: everything is old, so that what holds does so for any thresholds. Leases are over: a replica may stand still
// past its own. Claims are ended one at a time.

// recovery is a release under way: it has taken a generation and asks GitHub.
type recovery struct {
	kind    recoveryKind
	pod     uint8
	gen     uint8
	removed uint8 // 1: the registrations are gone, the row is not written yet
	give    uint8 // 1: a pod without a mint stays idle
	back    uint8 // 1: GitHub reports the job, which was recorded as running, as queued
}

type recoveryKind uint8

const (
	recoverNothing recoveryKind = iota
	endClaim                    // EndClaim
	unregister                  // Unregister: the first half of it
	retireProven                // RetireProven: the row is there, GitHub's lists are read
	lostPod                     // the product's own, in internal/server/dispatch's lost.go
)

func (m *machine) recoverySteps(s *state) {
	if m.frozen(s) { // CLAIM-17
		return
	}
	for j := range m.jobs {
		m.jobRecovery(s, j)
	}
	for p := range m.pods {
		m.podRecovery(s, p)
		if m.without.rowsStay && s.claimOf(p).st != claimNone && s.pod[p].life != gone { // EXCL-1
			t := *s
			m.moveJob(&t, t.claimOf(p).job, jobEvRelease)
			*t.claimOf(p) = claim{}
			m.happens("a row is removed for its age, of", p, &t)
		}
	}
}

var (
	claimIs = [...]table.ClaimIs{table.NoRow, table.Claimed, table.Minted, table.Executing, table.Spent, table.Retired}
	jobIs   = map[fleet.JobState]table.JobIs{
		fleet.JobClaimed: table.Bound, fleet.JobMinted: table.Bound, fleet.JobExecuting: table.Runs, fleet.JobWaiting: table.Waits,
		fleet.JobQueued: table.Waits, fleet.JobCompleted: table.Ended, fleet.JobCancelled: table.Ended, fleet.JobStale: table.Ended,
	}
)

// evidence is what the passes know of a pod once they have asked GitHub.
func (m *machine) evidence(s *state, p int) table.Evidence {
	c, q := s.claimOf(p), &s.pod[p]
	e := table.Evidence{Claim: claimIs[c.st], Age: table.Old}
	if m.prompt && m.soon(s, p) {
		e.Age = table.Young
	}
	switch {
	case q.life == gone:
		e.Pod = table.Gone
	case q.shown.terminal():
		e.Pod = table.Terminal
	case q.life != up:
		e.Pod = table.Deleting
	}
	if e.Pod == table.Present || e.Pod == table.Deleting {
		e.Poller, e.Runner, e.Label = q.shown.table()
	}
	if s.open(p) {
		e.Registrations = table.SomeOpen
	}
	e.RunnerAtGitHub = m.runnerAtGitHub(s, p)
	if !m.live(c) {
		if c.proof == 1 {
			e.Proven = table.Yes
		}
		return e
	}
	if c.st == claimExecuting || c.st == claimMinted && (c.ack == 1 || e.Poller == table.Delivered) {
		e.Acked = table.Yes
		if e.Pod == table.Present { // its owner is noted beside the label, which no other step waits for
			e.Label = table.Yes
		}
	}
	if c.job != 0 {
		e.Job = jobIs[fleet.JobStates()[s.db.job[c.job-1]]]
		if e.Job == table.Waits {
			e.Job = table.Bound
		}
		if e.Job != table.Ended {
			e.JobAtGitHub = s.jobAtGitHub(int(c.job-1), p)
		}
	}
	return e
}

// soon: something is under way that lasts for seconds.
func (m *machine) soon(s *state, p int) bool {
	for i := range s.op {
		if s.op[i].at >= opServe && int(s.op[i].pod) == p {
			return true
		}
	}
	if s.acquired(p) {
		return true
	}
	q := &s.pod[p]
	removed := m.live(s.claimOf(p)) && !s.open(p)
	return q.poller == pollStaged || removed && q.lost == 0 && q.shown&^shownOwner != q.truth()
}

// table reads the containers and the label as the passes do.
func (s shown) table() (table.PollerIs, table.RunnerIs, table.YesNo) {
	poller, runner, label := table.Polls, table.Ready, table.No
	switch {
	case s&shownExited0 != 0:
		poller = table.Delivered
	case s&shownFailed != 0:
		poller = table.Failed
	}
	switch {
	case s&shownRunnerEnd != 0:
		runner = table.Stopped
	case s&shownNotReady != 0:
		runner = table.NotReady
	}
	if s&shownOwner != 0 {
		label = table.Yes
	}
	return poller, runner, label
}

// runnerAtGitHub is the liveliest of the registrations that the rows know; without a claim, of all that GitHub lists.
func (m *machine) runnerAtGitHub(s *state, p int) table.RunnerSays {
	if s.scopeDown == 1 {
		return table.RunnerUnreadable
	}
	lists := !m.live(s.claimOf(p)) && s.pod[p].life != gone && !s.pod[p].shown.terminal()
	says := table.RunnerAbsent
	s.eachReg(p, func(reg uint8) bool {
		if s.db.reg[reg-1] == rowOpen || lists {
			switch s.reg[reg-1] {
			case regOffline:
				says = max(says, table.RunnerOffline)
			case regOnline:
				says = max(says, table.RunnerIdle)
			case regBusy:
				if s.lag == 1 {
					says = max(says, table.RunnerIdle)
				} else {
					says = max(says, table.RunnerBusy)
				}
			}
		}
		return true
	})
	return says
}

func (s *state) jobAtGitHub(j, p int) table.JobSays {
	switch {
	case s.scopeDown == 1:
		return table.JobUnreadable
	case s.job[j].ended():
		return table.JobCompleted
	case s.job[j] == ghRunning && s.lag == 1:
		return table.JobQueued
	case s.job[j] == ghRunning && podOf(s.exec[j]) == p:
		return table.JobHere
	case s.job[j] == ghRunning:
		return table.JobElsewhere
	default:
		return table.JobQueued
	}
}

// podRecovery does what the table says about a pod and its claim.
func (m *machine) podRecovery(s *state, p int) {
	e := m.evidence(s, p)
	v := m.rules.judge(e)
	t := *s
	switch v.Do {
	case table.Release, table.ReleaseRetire:
		if s.rec.kind == recoverNothing {
			m.begin(&t, p, endClaim)
			t.rec.give = flag8(v.Do == table.Release && e.Pod == table.Present)
			t.rec.back = flag8(e.Job == table.Runs && e.JobAtGitHub == table.JobQueued)
			m.happens(kindNames[v.Kind], p, &t)
		}
	case table.Unregister:
		if s.rec.kind == recoverNothing {
			m.begin(&t, p, unregister)
			m.happens(kindNames[v.Kind], p, &t)
		}
	case table.RetirePod:
		if s.rec.kind == recoverNothing {
			m.moveClaim(t.claimOf(p), evRetire)
			m.begin(&t, p, retireProven)
			m.happens(kindNames[v.Kind], p, &t)
		}
	case table.Adopt:
		m.adoptBusy(s, p)
	case table.Complete, table.MarkExecuting:
		m.recordJob(s, int(s.claimOf(p).job-1))
	case table.TakeOffLabel:
		t.pod[p].shown &^= shownOwner
		m.happens(kindNames[v.Kind], p, &t)
	case table.CloseRegistrations:
		if m.remove(&t, p, false) == removedAll {
			m.happens(kindNames[v.Kind], p, &t)
		}
	}
}

var kindNames = func() map[table.Kind]string {
	names := map[table.Kind]string{}
	for _, kind := range table.Kinds() {
		names[kind] = string(kind) + ":"
	}
	return names
}()

func flag8(is bool) uint8 {
	if is {
		return 1
	}
	return 0
}

// adoptBusy: the lists show a busy runner without a claim.
func (m *machine) adoptBusy(s *state, p int) {
	s.eachReg(p, func(reg uint8) bool {
		if s.reg[reg-1] == regBusy && s.db.adopt&bit(reg) == 0 {
			t := *s
			t.db.adopt |= bit(reg)
			m.add(true, kindNames[table.UnknownRunner], p, -1, reg, &t)
		}
		return true
	})
}

// recordJob applies what GitHub says of a job as if its webhook had come.
func (m *machine) recordJob(s *state, j int) {
	t := *s
	reg := s.exec[j]
	switch {
	case s.job[j].ended():
		m.record(&t, s.ending(j), j, reg)
	case s.job[j] == ghRunning && s.lag == 0:
		m.record(&t, eventStarted, j, reg)
	}
	if t != *s {
		m.add(true, "recovery records what GitHub says of a job", -1, j, reg, &t)
	}
}

// begin takes a generation, so that every other actor's writes are void from here on (CLAIM-15).
func (m *machine) begin(t *state, p int, kind recoveryKind) {
	c := t.claimOf(p)
	if m.live(c) {
		c.gen = m.fresh(t, p)
	}
	t.rec = recovery{kind: kind, pod: uint8(p), gen: c.gen} //nolint:gosec // at most maxPods
}

func (m *machine) releaseSteps(s *state) {
	p := int(s.rec.pod)
	lists := s.rec.kind != lostPod
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
		m.remove(&t, p, lists)
		t.db.reg, t.rec = rows, recovery{}
		m.chance("recovery's removal times out after it has worked, of", p, &t)
	}
	t := *s
	result := removedAll
	if !m.without.removal { // EXCL-6
		result = m.remove(&t, p, lists)
	}
	if m.without.refused && result == removedBusy {
		result = removedAll
	}
	if result == removedAll && s.rec.kind == unregister {
		t.rec = recovery{}
		m.happens("recovery has removed the registrations, and no more, of", p, &t)
	} else if result == removedAll {
		t.rec.removed = 1
		m.happens("recovery has removed the registrations of", p, &t)
	} else {
		t.rec = recovery{}
		m.happens("recovery keeps, GitHub calls it busy or says nothing, ", p, &t)
	}
}

// release ends the claim, if it is still the one that the pass began with; or writes the proof into a row that is over.
func (m *machine) release(t *state, p int) {
	c := t.claimOf(p)
	if t.rec.kind == retireProven {
		if !m.live(c) && c.st != claimNone && t.pod[p].life != gone {
			c.proof = 1
		}
		return
	}
	if !m.live(c) || !m.holds(c, t.rec.gen) {
		return
	}
	job := c.job
	if t.rec.give == 1 && c.st == claimClaimed {
		m.moveClaim(c, evUnclaim)
	} else if m.moveClaim(c, evRelease) {
		c.proof = 1
	}
	m.moveJob(t, job, jobEvRelease)
	if t.rec.back == 1 && job != 0 && !m.claimed(t, int(job-1)) { // it never ran, by GitHub's word
		m.moveJob(t, job, jobEvReturned)
	}
}

// claimed: some live claim has the job.
func (m *machine) claimed(s *state, j int) bool {
	for p := range s.db.claim {
		if m.live(&s.db.claim[p]) && s.db.claim[p].job == jobRef(j) {
			return true
		}
	}
	return false
}

// jobRecovery: the table about jobs that no claim has, and what the queue's own passes find in GitHub's lists.
func (m *machine) jobRecovery(s *state, j int) {
	truth, row := s.job[j], s.db.job[j]
	state := fleet.JobStates()[row]
	if !m.claimed(s, j) {
		e := table.Evidence{Pod: table.Gone, Age: table.Old, Job: jobIs[state]}
		if e.Job == table.Bound || e.Job == table.Runs {
			e.JobAtGitHub = s.jobAtGitHub(j, -1)
			switch v := m.rules.judge(e); v.Do {
			case table.Requeue:
				t := *s
				event := jobEvRelease
				if e.Job == table.Runs {
					event = jobEvReturned
				}
				if m.moveJob(&t, jobRef(j), event) {
					m.add(true, kindNames[v.Kind], -1, j, 0, &t)
				}
			case table.Complete, table.MarkExecuting:
				m.recordJob(s, j)
			}
		}
	}
	if state == fleet.JobQueued && s.scopeDown == 0 {
		m.recordJob(s, j) // queued_reaped, and the sweep of GitHub's queue
	}
	if truth == ghQueued && row == jobAbsent && s.hooks[j]&hookQueued == 0 {
		t := *s
		m.record(&t, eventQueued, j, 0)
		m.add(true, "the sweep of GitHub's queue finds a job", -1, j, 0, &t)
	}
	if row == jobAbsent && truth != ghQueued && s.hooks[j] == 0 && s.scopeDown == 0 {
		m.recordJob(s, j) // redelivered
	}
}
