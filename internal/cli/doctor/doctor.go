package doctor

import (
	"cmp"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	// SeverityError: jobs stay queued, or will, until an administrator acts.
	SeverityError Severity = "error"
	// SeverityWarning: everything runs, and something should be changed.
	SeverityWarning Severity = "warning"
)

// Finding is one thing that is wrong.
type Finding struct {
	Code     string   `json:"code"` // stays; sentences may change
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject,omitempty"` // what it is about, such as a pool
	Sentence string   `json:"sentence"`
	Remedy   string   `json:"remedy"` // what to do, with a command where there is one
}

// Unchecked is a check that could not run.
type Unchecked struct {
	What   string `json:"what"`
	Why    string `json:"why"`
	Remedy string `json:"remedy,omitempty"`
}

// Report is the result of all checks.
type Report struct {
	Findings  []Finding   `json:"findings"`
	Unchecked []Unchecked `json:"unchecked"`
	Checked   []string    `json:"checked"` // what was checked, with findings or without
}

// Evidence is what was seen. A part that is nil was not checked; Unchecked says why.
type Evidence struct {
	Now       time.Time // by this machine's clock
	GitHub    *GitHub
	Ledger    *Ledger
	Cluster   *Cluster
	Unserved  *dispatch.Unserved // queued jobs that no pool serves
	Unchecked []Unchecked
}

// Examine judges the evidence. It is pure: the same evidence gives the same report.
func Examine(e Evidence) Report {
	r := Report{Findings: []Finding{}, Unchecked: append([]Unchecked{}, e.Unchecked...), Checked: []string{}}
	if e.GitHub != nil {
		r.Checked = append(r.Checked, "GitHub")
		examineGitHub(&r, *e.GitHub)
	}
	if e.Ledger != nil {
		r.Checked = append(r.Checked, "database")
		examineLedger(&r, *e.Ledger)
	}
	if e.Cluster != nil {
		r.Checked = append(r.Checked, "cluster")
		examineCluster(&r, *e.Cluster, e.Now)
	}
	if e.Unserved != nil {
		examineUnserved(&r, *e.Unserved, e.Now)
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(rank(a.Severity), rank(b.Severity)) })
	return r
}

func rank(s Severity) int {
	if s == SeverityError {
		return 0
	}
	return 1
}

func (r *Report) found(f Finding) { r.Findings = append(r.Findings, f) }

// Exit codes of the command.
const (
	ExitFine      = 0 // nothing is wrong, or there are warnings only
	ExitErrors    = 1 // there are errors
	ExitUnchecked = 2 // no errors, but some checks could not run
)

// ExitCode is what the command exits with.
func (r Report) ExitCode() int {
	switch {
	case slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == SeverityError }):
		return ExitErrors
	case len(r.Unchecked) > 0:
		return ExitUnchecked
	default:
		return ExitFine
	}
}

// Bounds of how far clocks may be apart.
const (
	skewReported = 10 * time.Second
	skewBad      = time.Minute
)

// Clock is a reading of another machine's clock.
type Clock struct {
	Ahead time.Duration // of ours; negative: behind it
	Doubt time.Duration // how far off the reading may be
}

// readClock compares a reading with our own clock, which was read before and after. grain is the unit of the other's.
func readClock(theirs, before, after time.Time, grain time.Duration) Clock {
	middle := before.Add(after.Sub(before) / 2)
	return Clock{Ahead: theirs.Add(grain / 2).Sub(middle), Doubt: after.Sub(before)/2 + grain/2}
}

// examineClock reports a difference that exceeds the doubt.
func examineClock(r *Report, whose string, c Clock) {
	off := c.Ahead.Abs() - c.Doubt
	if off < skewReported {
		return
	}
	severity, direction := SeverityWarning, "ahead of"
	if off >= skewBad {
		severity = SeverityError
	}
	if c.Ahead < 0 {
		direction = "behind"
	}
	r.found(Finding{
		Code: "clock-skew", Severity: severity, Subject: whose,
		Sentence: "The clock of " + whose + " is " + c.Ahead.Abs().Round(time.Second).String() + " " + direction + " that of this machine.",
		Remedy: "Set the clock that is wrong: `timedatectl set-ntp true` on a machine with systemd. What the App signs follows GitHub's clock; " +
			"certificates, leases and ages do not.",
	})
}
