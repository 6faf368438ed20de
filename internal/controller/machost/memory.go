package machost

import (
	"math"
	"time"
)

// Outcome of an attempt.
type Outcome string

// Outcomes. They are kept in status.outcome, and label a metric.
const (
	OutcomeNone           Outcome = ""
	OutcomeRunning        Outcome = "Running"   // has begun; or its controller died, and its end is unknown
	OutcomeSucceeded      Outcome = "Succeeded" // every step is as it should be
	OutcomeDeferred       Outcome = "Deferred"  // what could be done beside machines that run is done
	OutcomeUnreachable    Outcome = "Unreachable"
	OutcomeHostKeyChanged Outcome = "HostKeyChanged"
	OutcomeWrongPassword  Outcome = "WrongPassword"
	OutcomeLoginRefused   Outcome = "LoginRefused" // of the SSH key
	OutcomeFailed         Outcome = "Failed"
)

// What decide depends on.
const (
	// maxAttempts is how many attempts may fail for one desired configuration before the Mac is left alone for restAfterFailure.
	maxAttempts      = 5
	restAfterFailure = time.Hour
	// Failed attempts are retried after 30 s, 1 min, 2 min and so on, each with a jitter of up to a fifth: Macs that failed together do not
	// retry together.
	firstBackOff = 30 * time.Second
	maxBackOff   = 15 * time.Minute
	jitter       = 0.2
	// nodeGrace is how long a Node may be missing. A running node agent registers it again within ten seconds (NODE-8).
	nodeGrace = 3 * time.Minute
	// silentGrace is how long a Node may be not ready before an attempt checks the Mac: longer than a restart of macOS takes.
	silentGrace = 10 * time.Minute
	// busyRetry is the delay when VMs run although the Node is cordoned and empty: they are not runners of this fleet.
	busyRetry = time.Minute
	// settle is how long a Node stays cordoned before its emptiness is trusted: pods may have been on their way.
	settle = 10 * time.Second
	// drainLook is the interval at which a draining Node is checked, lookAgain that of an idle host: Secrets are not watched.
	drainLook = 5 * time.Second
	lookAgain = time.Minute
	// checkEvery is the interval at which a Mac that matches its configuration is checked.
	checkEvery = 24 * time.Hour
	// drainPatience is how long a drain may take before an Event reports it. It never stops a VM.
	drainPatience = 6 * time.Hour
	// unreachableHold is the number of consecutive attempts that did not reach the Mac after which a Node is uncordoned again, and the next
	// Mac of the pool has its turn.
	unreachableHold = 5
)

// memory is what is remembered of a host from one look to the next. It lives in the MacHost's status.
type memory struct {
	Applied     string    // hash of what was wanted when every step was right
	AppliedTime time.Time // when that was
	// The rest is about what Wanted is the hash of; about anything else it says nothing.
	Wanted      string
	Attempts    int // that have begun and not ended well
	Unreachable int // in a row
	Next        time.Time
	Outcome     Outcome
	// BlockedBy is the hash of what must change before another attempt, whatever else does.
	BlockedBy string
	// Missing is since when the Node has not been there, or has been silent; zero while it is well, or none is wanted.
	Missing time.Time
}

// begin is the memory of an attempt that is about to begin. It is written down before it does, so that one which takes its
// controller along is counted, too.
func (m memory) begin(wanted string, now time.Time, random float64) memory {
	if m.Wanted != wanted || m.expired(now) {
		m.Attempts, m.Unreachable = 0, 0
	}
	m.Wanted, m.Outcome, m.BlockedBy = wanted, OutcomeRunning, ""
	m.Attempts++
	m.Next = now.Add(backOff(m.Attempts, random))
	return m.rested(now)
}

// risking is the memory of an attempt that may have a password refused, of which nothing is known if its controller dies. One such attempt
// is followed by another; after two in a row, each with its controller, only another password is tried.
func (m memory) risking(before memory, account string) memory {
	if account == "" {
		return m
	}
	m.BlockedBy = account
	if before.Outcome == OutcomeRunning && (before.BlockedBy == account || before.BlockedBy == twice(account)) {
		m.BlockedBy = twice(account)
	}
	return m
}

// twice marks an account as one of two attempts with unknown ends.
func twice(account string) string { return "twice/" + account }

// end is the memory after the attempt that begin began for m.Wanted.
func (m memory) end(outcome Outcome, held string, now time.Time, random float64) memory {
	m.Outcome, m.BlockedBy = outcome, ""
	if outcome != OutcomeUnreachable {
		m.Unreachable = 0
	}
	switch outcome {
	case OutcomeSucceeded:
		m.Applied, m.AppliedTime = m.Wanted, now
		if !m.Missing.IsZero() {
			m.Missing = now // the Node has its grace again
		}
		// The attempt counts until the Node exists: a Node that never appears must not cause attempts without limit.
		m.Next = now.Add(max(nodeGrace, backOff(m.Attempts, random)))
	case OutcomeDeferred:
		m.Attempts--
		m.Next = now.Add(busyRetry)
	case OutcomeUnreachable:
		m.Attempts--
		m.Unreachable++
		m.Next = now.Add(backOff(m.Unreachable, random))
	case OutcomeWrongPassword, OutcomeHostKeyChanged:
		m.BlockedBy, m.Next = held, time.Time{} // once it may be tried again, nothing else is waited for
		m.Attempts--
	default:
		m.Next = now.Add(backOff(m.Attempts, random))
	}
	return m.rested(now)
}

// rested adds the pause after the last permitted attempt, also when its end will not be observed.
func (m memory) rested(now time.Time) memory {
	if m.exhausted() {
		m.Next = now.Add(restAfterFailure)
	}
	return m
}

// notice records the Node's state. It is called in every pass, before decide.
func (m memory) notice(well bool, now time.Time) memory {
	switch {
	case well:
		m.Missing = time.Time{}
	case m.Missing.IsZero():
		m.Missing = now
	}
	return m
}

// bounded is the memory without times that the clock may not reach for long: it was set back. It is called in every pass, before notice.
func (m memory) bounded(now time.Time) memory {
	for _, t := range []struct {
		time *time.Time
		most time.Duration
	}{{&m.AppliedTime, 0}, {&m.Missing, 0}, {&m.Next, restAfterFailure}} {
		if latest := now.Add(t.most); t.time.After(latest) {
			*t.time = latest
		}
	}
	return m
}

// settled is the memory of a host that is what is wanted, with a Node that is ready.
func (m memory) settled() memory {
	m.Attempts, m.Unreachable, m.Next = 0, 0, time.Time{}
	return m
}

// exhausted reports whether there were as many attempts as there may be.
func (m memory) exhausted() bool { return m.Attempts >= maxAttempts }

// expired reports whether the rest after them is over.
func (m memory) expired(now time.Time) bool { return m.exhausted() && !now.Before(m.Next) }

// backOff is the delay after that many attempts; random is from [0, 1).
func backOff(attempts int, random float64) time.Duration {
	wait := float64(firstBackOff) * math.Pow(2, float64(max(attempts, 1)-1))
	wait = min(wait, float64(maxBackOff))
	return time.Duration(wait * (1 - jitter + 2*jitter*random))
}
