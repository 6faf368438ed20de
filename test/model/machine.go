package model

import "time"

// config bounds a walk.
type config struct {
	pods, jobs int
	requests   int // of polls that are held at once; default 2
	budget     int // live claims that the account may have; default 2
	faults     int // that may happen
	allow      fault
	// lateQueued: the webhook that queues a job is on its way too; otherwise every job is queued at the start.
	lateQueued bool
	// synced: a restore takes longer than labels and status lag. noHold: nothing is held after it, and no claim rebuilt.
	synced, noHold bool
	// noRecovery leaves the recovery table out, and nothing else.
	noRecovery bool
	// removable is how many of the pods the controller ever wants gone: default all, -1 for none.
	removable int
	// healthy: nothing happens that may cost a pod, so that none may be lost (CLAIM-16).
	healthy bool
	// noticed: no replica begins with a request whose connection has broken; otherwise that may be half open. leased: none
	// works for longer than its lease; otherwise it may stand still in the middle of anything.
	noticed, leased bool
	// prompt: recovery's waits last longer than what the server and the pod do within seconds: a lease, a poller's end
	// after it has staged something, the propagation of a container's status to the API server.
	prompt bool
	// refuses: GitHub's removal knows of a job as soon as there is one, however its other words lag.
	refuses bool
	// unnumbered: the pods' agents do not number their requests, as those of an earlier version.
	unnumbered bool
	// stops is how many of the pods SIGTERM may reach, at any moment, beside all other events.
	stops int
	// noLiveness skips the search for states that nothing leads out of.
	noLiveness bool
	rules      *rules // default: the product's
	without    without
	limit      int // of states; default 40 million
	// until ends the walk when a rule with this prefix is broken.
	until string
}

// fault is a kind of misfortune.
type fault uint32

const (
	faultCrash fault = 1 << iota
	faultMintRefused
	faultMintTimeout
	faultConnection
	faultAckLost
	faultWebhookLost
	faultWebhookTwice
	faultScope
	faultRemovalTimeout
	faultCancel
	faultPoller
	faultRunner
	faultHang
	faultUser
	faultNode
	faultRestore
	faultLag

	everyFault  = faultLag<<1 - 1
	butRestores = everyFault &^ (faultRestore | faultLag) // a lag has walks of its own: see prompt
)

// machine makes the steps.
type machine struct {
	config
	d    *decisions
	from *state
	out  []step
}

// step is one thing that can happen in a state.
type step struct {
	name string
	// The subject of the name; -1 for nothing.
	pod, job int8
	reg      uint8
	// fair: neither a fault nor a user's choice. It happens in the end.
	fair    bool
	swapped bool // to has the pods exchanged
	broken  string
	to      state
}

func newMachine(c config) *machine {
	if c.requests == 0 {
		c.requests = 2
	}
	if c.budget == 0 {
		c.budget = 2
	}
	switch c.removable {
	case 0:
		c.removable = c.pods
	case -1:
		c.removable = 0
	}
	if c.limit == 0 {
		c.limit = 40_000_000
	}
	if c.rules == nil {
		r := productRules()
		c.rules = &r
	}
	return &machine{config: c, d: decideAll(*c.rules, c.budget)}
}

func (m *machine) first() state {
	var s state
	for j := range s.db.job {
		switch {
		case j >= m.jobs:
			s.db.job[j], s.job[j] = jobCompleted, ghCompleted
		case m.lateQueued:
			s.hooks[j] = hookQueued
		default:
			s.db.job[j] = jobQueued
		}
	}
	for p := m.pods; p < maxPods; p++ {
		s.pod[p].life = gone
	}
	s.faults = uint8(m.faults) //nolint:gosec // a few
	return s
}

func (m *machine) nextGeneration(last, latest uint8) uint8 {
	next := m.rules.nextGeneration(int64(last), time.UnixMicro(int64(latest)+1))
	return uint8(next) //nolint:gosec // renamed in every state: a handful
}

// next lists what can happen in s. The slice is good until the next call.
func (m *machine) next(s *state) []step {
	m.out, m.from = m.out[:0], s
	m.githubSteps(s)
	for p := range m.pods {
		m.podSteps(s, p)
		if p < m.removable {
			m.controllerSteps(s, p)
		}
		if s.pod[p].life == gone {
			m.forgetSteps(s, p)
		}
	}
	for i := range m.requests {
		if s.op[i].at != opFree {
			m.opSteps(s, i)
		}
	}
	m.adoptionSteps(s)
	if s.rec.kind != recoverNothing {
		m.releaseSteps(s)
	}
	if !m.noRecovery && s.backup != backupHeld {
		m.recoverySteps(s)
	}
	m.backupSteps(s)
	m.holdSteps(s)
	return m.out
}

// happens adds a step that happens in the end; chance one that need not.
func (m *machine) happens(name string, p int, t *state) *step { return m.add(true, name, p, -1, 0, t) }
func (m *machine) chance(name string, p int, t *state) *step  { return m.add(false, name, p, -1, 0, t) }

func (m *machine) add(fair bool, name string, p, j int, reg uint8, t *state) *step {
	m.out = append(m.out, step{})
	e := &m.out[len(m.out)-1]
	e.name, e.pod, e.job, e.reg, e.fair, e.broken = name, int8(p), int8(j), reg, fair, "" //nolint:gosec // small
	e.to = *t
	if e.broken = m.brokenByStep(m.from, &e.to); e.broken == "" && fair {
		e.broken = m.lostOrTwice(m.from, &e.to)
	}
	e.swapped = m.canonical(&e.to)
	return e
}

// unlucky returns a copy of s in which one fault of that kind has been used up.
func (m *machine) unlucky(s *state, kind fault) (state, bool) {
	if s.faults == 0 || m.allow&kind == 0 {
		return state{}, false
	}
	t := *s
	t.faults--
	return t, true
}

func (m *machine) backupSteps(s *state) {
	if m.allow&faultRestore == 0 {
		return
	}
	if s.backup == backupNone && s.faults > 0 {
		t := *s
		t.backup, t.backupDB = backupTaken, s.db
		m.chance("a backup is taken", -1, &t)
	}
	if s.backup != backupTaken || m.synced && !m.settled(s) {
		return
	}
	t, ok := m.unlucky(s, faultRestore)
	if !ok {
		return
	}
	t.db, t.backup, t.backupDB, t.rec, t.confirmed = s.backupDB, backupHeld, ledger{}, recovery{}, 0
	if m.noHold || m.without.hold {
		t.backup = backupRestored
	}
	for i := range t.op { // a replica that is asking GitHub continues, and its statements are refused
		if t.backup == backupRestored || t.op[i].at <= opMatch {
			t.hangUp(i)
		}
	}
	m.chance("THE DATABASE IS RESTORED from the backup", -1, &t)
}

// settled: every pod shows what is true of it, and no deletion is on its way that the server does not see.
func (m *machine) settled(s *state) bool {
	for p := range m.pods {
		q := &s.pod[p]
		if q.life == gone {
			continue
		}
		if q.life != up && q.seen == 0 || q.leave&leaveSent != 0 || q.poller == pollStaged || q.shown&^shownOwner != q.truth() {
			return false
		}
	}
	return true
}
