package retention

import (
	"fmt"
	"time"
)

// Kind is a kind of row, as a metric value.
type Kind string

// The kinds, in the order of removal: referring rows before the rows that they refer to.
const (
	Deliveries    Kind = "deliveries"
	Jobs          Kind = "jobs"
	Tombstones    Kind = "tombstones"
	Sessions      Kind = "sessions"
	Registrations Kind = "registrations"
	Adoptions     Kind = "adoptions"
	Lanes         Kind = "lanes"
	LabelSets     Kind = "label_sets"
	Repositories  Kind = "repositories"
	Installations Kind = "ended_installations"
	Audit         Kind = "audit_events"
	Tails         Kind = "runner_tails"
	Samples       Kind = "pool_samples"
)

// Policy says how long each kind is kept after its end.
type Policy struct {
	// Deliveries of webhooks, by which redeliveries are recognized. GitHub redelivers for 3 days. After that time no message names a runner
	// that is gone, either: registrations and undecided adoptions are deleted with them, and so are the last log lines of failed runners.
	Deliveries time.Duration
	// Jobs that have ended.
	Jobs time.Duration
	// Tombstones of completed jobs, which outlive their rows: no later event revives the job (CLAIM-4).
	Tombstones time.Duration
	// Sessions of runners: usage and audit read them.
	Sessions time.Duration
	// Repositories without a reported job for that long: their queues are no longer swept, and their names are dropped.
	Repositories time.Duration
	// Installations that have ended, which no late message brings back.
	Installations time.Duration
	// Audit rows: who changed what about an account.
	Audit time.Duration
}

const day = 24 * time.Hour

// Default keeps deliveries for a week, jobs and repositories for a month, tombstones and ended installations for three, and
// sessions and the audit log for thirteen.
func Default() Policy {
	return Policy{
		Deliveries: 7 * day, Jobs: 30 * day, Tombstones: 90 * day, Sessions: 400 * day,
		Repositories: 30 * day, Installations: 90 * day, Audit: 400 * day,
	}
}

// lanesKept is how long a lane in which nothing waits or runs is kept. With the pass's interval it is gone within an hour (TEN-2).
const lanesKept = 30 * time.Minute

// samplesKept is how long the samples of pools are kept: the console shows 14 days of them, in whole steps.
const samplesKept = 15 * day

// GitHub delivers again what it sent in the last 3 days; a day more covers clocks and slow redeliveries.
const leastDeliveries = 4 * day

// leastRepositories: repositories of which a job was heard within a fortnight are swept.
const leastRepositories = 15 * day

// leastAudit: a shorter one answers no question that is asked a month later.
const leastAudit = 30 * day

// Check says what is wrong with the policy, and what to do about it.
func (p Policy) Check() error {
	switch {
	case p.Deliveries < leastDeliveries:
		return fmt.Errorf("webhook deliveries must be kept for at least %s: GitHub may deliver again for 3 days", leastDeliveries)
	case p.Jobs < day:
		return fmt.Errorf("ended jobs must be kept for at least %s", day)
	case p.Tombstones < p.Jobs || p.Tombstones < p.Deliveries:
		return fmt.Errorf("tombstones (%s) must be kept at least as long as jobs (%s) and deliveries (%s): "+
			"they bar late messages from reviving a job", p.Tombstones, p.Jobs, p.Deliveries)
	case p.Sessions < p.Jobs:
		return fmt.Errorf("sessions (%s) must be kept at least as long as jobs (%s)", p.Sessions, p.Jobs)
	case p.Repositories < leastRepositories:
		return fmt.Errorf("repositories must be kept for at least %s after their last job: their queues are swept for 14 days", leastRepositories)
	case p.Installations < p.Deliveries:
		return fmt.Errorf("ended installations (%s) must be kept at least as long as deliveries (%s): "+
			"they bar late messages from bringing an installation back", p.Installations, p.Deliveries)
	case p.Audit < leastAudit:
		return fmt.Errorf("the audit log must be kept for at least %s", leastAudit)
	}
	return nil
}

// Rule takes what came to its end before that moment.
type Rule struct {
	Kind   Kind
	Before time.Time
}

// Rules at a moment.
func (p Policy) Rules(now time.Time) []Rule {
	return []Rule{
		{Deliveries, now.Add(-p.Deliveries)},
		{Jobs, now.Add(-p.Jobs)},
		{Tombstones, now.Add(-p.Tombstones)},
		{Sessions, now.Add(-p.Sessions)},
		{Registrations, now.Add(-p.Deliveries)},
		{Adoptions, now.Add(-p.Deliveries)},
		{Lanes, now.Add(-lanesKept)},
		{LabelSets, now}, // no jobs, no lanes: their own times have passed
		{Repositories, now.Add(-p.Repositories)},
		{Installations, now.Add(-p.Installations)},
		{Audit, now.Add(-p.Audit)},
		{Tails, now.Add(-p.Deliveries)},
		{Samples, now.Add(-samplesKept)},
	}
}
