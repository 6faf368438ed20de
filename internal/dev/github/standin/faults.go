package standin

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Fault makes something go wrong on purpose. A selector that is empty matches everything.
type Fault struct {
	// ID is assigned when the fault is added.
	ID int64 `json:"id"`
	// Kind is one of [FaultKinds].
	Kind FaultKind `json:"kind"`
	// Times is how often it strikes; 0 means until it is removed.
	Times int `json:"times,omitempty"`
	// Percent is how likely it strikes when it could; 0 means always.
	Percent int `json:"percent,omitempty"`
	// Event and Action select webhooks: "workflow_job", "queued".
	Event  string `json:"event,omitempty"`
	Action string `json:"action,omitempty"`
	// Job selects by the job's name, a shell pattern. A runner stands for the job it has, else for the one it was probably
	// minted for.
	Job string `json:"job,omitempty"`
	// Run selects by the id of the run. A rule of a [Submission] has it set automatically.
	Run int64 `json:"run,omitempty"`
	// Installation selects by the installation's id.
	Installation int64 `json:"installation,omitempty"`
	// Scope selects REST and runner-protocol calls by the organization or repository they are about, a shell pattern:
	// "acme", "acme/app", "acme/*".
	Scope string `json:"scope,omitempty"`
	// Route selects REST and runner-protocol calls by a part of "METHOD /route/{pattern}": "generate-jitconfig".
	Route string `json:"route,omitempty"`
	// Bucket selects REST calls by the rate limit they count against: "core", "actions_runner_registration".
	Bucket string `json:"bucket,omitempty"`
	// Runner selects by the runner's name, a shell pattern.
	Runner string `json:"runner,omitempty"`
	// Status is the answer of kinds that refuse.
	Status int `json:"status,omitempty"`
	// Delay is a duration such as "100ms".
	Delay Duration `json:"delay,omitempty"`
	// Hits counts how often it struck.
	Hits int `json:"hits"`
}

// Duration is a time.Duration that JSON writes as "1m30s".
type Duration time.Duration

// MarshalText writes the duration as time.ParseDuration reads it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what MarshalText writes.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write it like 100ms or 2m", text)
	}
	*d = Duration(parsed)
	return nil
}

func (f Fault) delayOr(fallback time.Duration) time.Duration {
	if f.Delay > 0 {
		return time.Duration(f.Delay)
	}
	return fallback
}

func (f Fault) statusOr(fallback int) int {
	if f.Status > 0 {
		return f.Status
	}
	return fallback
}

func matchesPattern(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// subject is compared with a fault's selectors. Its unknown fields are empty, and match no selector.
type subject struct {
	event, action, job           string
	run, installation            int64
	scope, route, bucket, runner string
}

func (f Fault) matches(s subject) bool {
	return (f.Event == "" || f.Event == s.event) && (f.Action == "" || f.Action == s.action) &&
		(f.Run == 0 || f.Run == s.run) && (f.Installation == 0 || f.Installation == s.installation) &&
		(f.Route == "" || strings.Contains(s.route, f.Route)) && (f.Bucket == "" || f.Bucket == s.bucket) &&
		matchesPattern(f.Job, s.job) && matchesPattern(f.Scope, s.scope) && matchesPattern(f.Runner, s.runner)
}

// jobSubject is a job without a runner.
func jobSubject(j *job) subject {
	return subject{job: j.name, run: j.run.id, installation: j.run.repo.owner.installation, scope: j.run.repo.fullName()}
}

// runnerSubjectLocked is a runner with the job it has, else the one it was probably minted for.
func runnerSubjectLocked(rn *runner) subject {
	about := subject{}
	if j := rn.job; j != nil {
		about = jobSubject(j)
	} else if rn.intended != nil {
		about = jobSubject(rn.intended)
	}
	about.runner, about.scope, about.installation = rn.name, rn.scope.path, rn.scope.owner.installation
	return about
}

// values are the fields by their JSON names, as far as they are set.
func (f Fault) values() map[string]bool {
	return map[string]bool{
		"event": f.Event != "", "action": f.Action != "", "job": f.Job != "", "run": f.Run != 0, "installation": f.Installation != 0,
		"scope": f.Scope != "", "route": f.Route != "", "bucket": f.Bucket != "", "runner": f.Runner != "", "status": f.Status != 0,
		"delay": f.Delay != 0,
	}
}

func (f Fault) validate() error {
	at := slices.IndexFunc(FaultCatalogue(), func(one FaultInfo) bool { return one.Kind == f.Kind })
	if at < 0 {
		names := make([]string, 0, len(FaultKinds()))
		for _, kind := range FaultKinds() {
			names = append(names, string(kind))
		}
		return fmt.Errorf("there is no fault %q: use one of %s", f.Kind, strings.Join(names, ", "))
	}
	for _, pattern := range []string{f.Job, f.Runner, f.Scope} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%q is not a pattern: use * and ? as in file names", pattern)
		}
	}
	if err := f.validateFields(FaultCatalogue()[at]); err != nil {
		return err
	}
	switch {
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("%s needs a status from 400 to 599, not %d", f.Kind, f.Status)
	case (f.Kind == FaultRateEmpty || f.Kind == FaultRateSecondary) && f.Status != 0 && f.Status != 403 && f.Status != 429:
		return fmt.Errorf("%s answers 403 or 429, as GitHub does, not %d", f.Kind, f.Status)
	case f.Times < 0 || f.Percent < 0 || f.Percent > 100 || f.Delay < 0:
		return fmt.Errorf("times and delay must not be negative, and percent must be from 0 to 100")
	}
	return nil
}

// validateFields refuses what the kind would ignore: a rule that silently selects everything spoils a scenario.
func (f Fault) validateFields(about FaultInfo) error {
	set := f.values()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if set[name] && !slices.Contains(about.Reads, name) {
			return fmt.Errorf("%s does not read %q: it reads %s", f.Kind, name, strings.Join(about.Reads, ", "))
		}
	}
	for _, name := range about.Needs {
		if !set[name] {
			return fmt.Errorf("%s needs %q to be set", f.Kind, name)
		}
	}
	return nil
}

// faultBook holds the faults in force. Safe for concurrent use; its lock is the innermost. Rules of a run are kept apart,
// so that ten thousand runs with a rule each cost nothing to the others.
type faultBook struct {
	mu     sync.Mutex
	pick   func(int) int
	nextID int64
	faults []*Fault
	byRun  map[int64][]*Fault
}

func (b *faultBook) add(f Fault) (Fault, error) {
	if err := f.validate(); err != nil {
		return Fault{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nextID++
	f.ID, f.Hits = b.nextID, 0
	b.keepLocked(&f)
	return f, nil
}

func (b *faultBook) keepLocked(f *Fault) {
	if f.Run == 0 {
		b.faults = append(b.faults, f)
		return
	}
	if b.byRun == nil {
		b.byRun = map[int64][]*Fault{}
	}
	b.byRun[f.Run] = append(b.byRun[f.Run], f)
}

// remove takes one fault away, or all of them with id 0. It reports whether there was any.
func (b *faultBook) remove(id int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	removed := false
	gone := func(f *Fault) bool {
		hit := id == 0 || f.ID == id
		removed = removed || hit
		return hit
	}
	b.faults = slices.DeleteFunc(b.faults, gone)
	for run, rules := range b.byRun {
		if b.byRun[run] = slices.DeleteFunc(rules, gone); len(b.byRun[run]) == 0 {
			delete(b.byRun, run)
		}
	}
	return removed
}

// forget drops the rules of a run that is over.
func (b *faultBook) forget(run int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byRun, run)
}

// list returns all faults in the order in which they were added.
func (b *faultBook) list() []Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Fault, 0, len(b.faults))
	for _, f := range b.faults {
		out = append(out, *f)
	}
	for _, rules := range b.byRun {
		for _, f := range rules {
			out = append(out, *f)
		}
	}
	slices.SortFunc(out, func(x, y Fault) int { return int(x.ID - y.ID) })
	return out
}

// restore puts saved faults back in force.
func (b *faultBook) restore(saved []Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range saved {
		b.nextID = max(b.nextID, f.ID)
		b.keepLocked(&f)
	}
}

// active reports whether a fault of the kind is in force for the subject, without using it up.
func (b *faultBook) active(kind FaultKind, about subject) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	strikes := func(f *Fault) bool { return f.Kind == kind && f.armed() && f.matches(about) }
	return slices.ContainsFunc(b.byRun[about.run], strikes) || slices.ContainsFunc(b.faults, strikes)
}

// take returns a fault of the kind that strikes the subject now, and counts it. Rules of its run go first.
func (b *faultBook) take(kind FaultKind, about subject) (Fault, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, faults := range [][]*Fault{b.byRun[about.run], b.faults} {
		for _, f := range faults {
			if f.Kind != kind || !f.armed() || !f.matches(about) {
				continue
			}
			if f.Percent > 0 && b.pick(100) >= f.Percent {
				continue
			}
			f.Hits++
			return *f, true
		}
	}
	return Fault{}, false
}

// none reports that no fault is in force, so that callers need not determine what one would strike.
func (b *faultBook) none() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.faults) == 0 && len(b.byRun) == 0
}

func (f *Fault) armed() bool { return f.Times == 0 || f.Hits < f.Times }

func retryAfter(wait time.Duration) string { return strconv.Itoa(max(1, int(wait.Seconds()))) }

func words(text string) []string { return strings.Fields(text) }
