package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// life is a runner container, by its machine's diary.
type life struct {
	started MachineRecord
	ended   *MachineRecord
}

// index finds things by what they are asked for.
type index struct {
	podOf      map[string]string // runner's name → pod UID, by Postgres' history
	nameOf     map[string]string // pod UID → name
	lives      map[string]*life  // by pod UID
	switchedOn map[string][]time.Time
	deletions  map[string][]AuditEvent // accepted, by pod name, in order
	there      map[string]bool         // by pod UID: it was seen in the cluster
	gone       map[string]time.Time    // by pod UID: it was seen, and then no more
	cancelled  map[int64]bool          // by the soak
	stopped    map[string]bool         // by pod name: the soak has deleted it
	claims     map[string][]Change     // by pod UID
	jobChanges map[int64][]Change
	pauses     []span
}

func indexOf(e *Evidence) index {
	i := index{
		podOf: map[string]string{}, nameOf: map[string]string{}, lives: map[string]*life{}, switchedOn: map[string][]time.Time{},
		deletions: map[string][]AuditEvent{}, cancelled: map[int64]bool{}, claims: map[string][]Change{}, jobChanges: map[int64][]Change{},
		stopped: map[string]bool{}, there: map[string]bool{}, gone: map[string]time.Time{}, pauses: pauses(e),
	}
	for _, r := range e.Pods {
		i.pod(r)
	}
	for _, c := range e.Changes {
		i.change(c)
	}
	i.registrations(e)
	for _, r := range e.Machines {
		switch r.Event {
		case "on":
			i.switchedOn[r.Machine] = append(i.switchedOn[r.Machine], r.At)
		case "start":
			i.lives[r.UID] = &life{started: r}
			i.nameOf[r.UID] = r.Pod
		case "end":
			if l := i.lives[r.UID]; l != nil && l.ended == nil {
				l.ended = &r
			}
		}
	}
	for _, a := range e.Audit {
		if a.Is("delete", "pods") && a.Accepted() {
			i.deletions[a.ObjectRef.Name] = append(i.deletions[a.ObjectRef.Name], a)
		}
	}
	for _, deletions := range i.deletions {
		slices.SortStableFunc(deletions, func(a, b AuditEvent) int { return a.At.Compare(b.At) })
	}
	for _, d := range e.Deeds {
		for _, job := range d.Jobs {
			i.cancelled[job] = true
		}
		for _, pod := range d.Pods {
			i.stopped[pod] = true
		}
	}
	return i
}

func (i *index) pod(r PodRecord) {
	switch r.Event {
	case "there":
		i.there[r.UID], i.nameOf[r.UID] = true, r.Pod
		delete(i.gone, r.UID)
	case "gone":
		i.gone[r.UID] = r.At
	case "all": // a soak that was interrupted continues: what disappeared in between did so before this reading
		for uid := range i.there {
			if _, known := i.gone[uid]; !known && !slices.Contains(r.There, uid) {
				i.gone[uid] = r.At
			}
		}
		for _, uid := range r.There {
			i.there[uid] = true
		}
	}
}

// wentAt is when a pod was no longer there. The audit log alone would not do: a request that the API server answered with a
// timeout, or with a conflict with what it had itself written, may have been carried out.
func (x *examiner) wentAt(uid string) time.Time {
	if at, gone := x.index.gone[uid]; gone {
		return at
	}
	if deletions := x.index.deletions[x.index.nameOf[uid]]; !x.index.there[uid] && len(deletions) > 0 {
		return deletions[0].At // it went between two looks
	}
	return x.Final.At
}

// registrations finds the pods of runners that no claim names.
func (i *index) registrations(e *Evidence) {
	for _, row := range e.Rows["runner_registrations"] {
		var r struct {
			Name string `json:"runner_name"`
			UID  string `json:"pod_uid"`
		}
		if json.Unmarshal(row, &r) == nil && i.podOf[r.Name] == "" {
			i.podOf[r.Name] = r.UID
		}
	}
}

func (i *index) change(c Change) {
	row := cmp.Or(string(c.New), string(c.Old))
	switch c.Table {
	case "runner_claims":
		var claim Claim
		if json.Unmarshal([]byte(row), &claim) != nil {
			return
		}
		i.claims[claim.PodUID] = append(i.claims[claim.PodUID], c)
		i.nameOf[claim.PodUID] = claim.PodName
		if claim.RunnerName != "" {
			i.podOf[claim.RunnerName] = claim.PodUID
		}
	case "workflow_jobs":
		var job struct {
			ID int64 `json:"id"`
		}
		if json.Unmarshal([]byte(row), &job) == nil {
			i.jobChanges[job.ID] = append(i.jobChanges[job.ID], c)
		}
	}
}

// inOrder sorts changes by their moment, and drops what was written twice.
func inOrder(changes []Change) []Change {
	seen := map[string]bool{}
	kept := slices.DeleteFunc(changes, func(c Change) bool {
		again := seen[c.ID]
		seen[c.ID] = true
		return again
	})
	slices.SortStableFunc(kept, func(a, b Change) int { return a.At.Compare(b.At) })
	return kept
}

type moment struct {
	at   time.Time
	text string
}

// timeline is what every witness says of a job.
func (x *examiner) timeline(j *Job) []string {
	var all []moment
	add := func(at *time.Time, format string, args ...any) {
		if at != nil && !at.IsZero() {
			all = append(all, moment{*at, fmt.Sprintf(format, args...)})
		}
	}
	add(j.QueuedAt, "GitHub: job %d queued", j.ID)
	add(j.StartedAt, "GitHub: runs on %s", j.RunnerName)
	add(j.CompletedAt, "GitHub: %s %s", j.Conclusion, j.Reason)
	for _, c := range x.index.jobChanges[j.ID] {
		var job struct {
			State string `json:"state"`
		}
		_ = json.Unmarshal(c.New, &job) // of a deletion there is none
		add(&c.At, "Postgres: job %s %s", c.Op, job.State)
	}
	for _, g := range j.Given {
		add(&g.AssignedAt, "GitHub: given to %s", g.Runner)
		add(g.AcquiredAt, "GitHub: acquired by %s", g.Runner)
		add(g.EndedAt, "GitHub: %s of %s", g.End, g.Runner)
	}
	pods := map[string]bool{}
	for _, name := range append(slices.Clone(j.AcquiredBy), j.RunnerName) {
		if uid := x.index.podOf[name]; uid != "" {
			pods[uid] = true
		}
	}
	// Every pod that the ledger ever had the job on.
	for uid, changes := range x.index.claims {
		if slices.ContainsFunc(changes, func(c Change) bool {
			var claim Claim
			return json.Unmarshal(c.New, &claim) == nil && claim.JobID != nil && *claim.JobID == j.ID
		}) {
			pods[uid] = true
		}
	}
	for _, uid := range sortedKeys(pods) {
		all = append(all, x.podMoments(uid)...)
	}
	return x.lines(all)
}

func (x *examiner) podTimeline(pod string) []string {
	for uid, name := range x.index.nameOf {
		if name == pod {
			return x.lines(x.podMoments(uid))
		}
	}
	return nil
}

func (x *examiner) podMoments(uid string) []moment {
	var all []moment
	name := x.index.nameOf[uid]
	for _, c := range x.index.claims[uid] {
		var claim Claim
		if json.Unmarshal(c.New, &claim) != nil {
			all = append(all, moment{c.At, "Postgres: claim of " + name + " " + c.Op})
			continue
		}
		text := fmt.Sprintf("Postgres: claim of %s %s, generation %d, runner %q", name, claim.State, claim.Generation, claim.RunnerName)
		if claim.JobID != nil {
			text += fmt.Sprintf(", job %d", *claim.JobID)
		}
		all = append(all, moment{c.At, text})
	}
	for _, r := range x.GitHub.Runners {
		if x.index.podOf[r.Name] != uid {
			continue
		}
		all = append(all, moment{r.RegisteredAt, "GitHub: registers " + r.Name})
		if r.RemovedAt != nil {
			all = append(all, moment{*r.RemovedAt, fmt.Sprintf("GitHub: %s removed, %s (job then: %d)", r.Name, r.RemovedBy, r.RemovedBusy)})
		}
	}
	if l := x.index.lives[uid]; l != nil {
		all = append(all, moment{l.started.At, "machine " + l.started.Machine + ": runner of " + name + " begins"})
		if l.ended != nil {
			all = append(all, moment{l.ended.At, fmt.Sprintf("machine: runner of %s ends with %d (killed: %t)", name, l.ended.Code, l.ended.Killed)})
		}
	}
	for _, a := range x.Audit {
		if a.ObjectRef.Name == name && name != "" && a.Verb != "patch" && a.Verb != "update" {
			all = append(all, moment{a.At, "API: " + a.String()})
		}
	}
	return all
}

// lines puts moments in order, with what the soak did between the first and the last of them.
func (x *examiner) lines(all []moment) []string {
	if len(all) == 0 {
		return nil
	}
	byTime := func(a, b moment) int { return a.at.Compare(b.at) }
	slices.SortStableFunc(all, byTime)
	from, to := all[0].at.Add(-2*time.Second), all[len(all)-1].at
	const most = 60
	for _, d := range x.Deeds {
		if d.At.Before(to) && d.Until.After(from) && len(all) < most {
			text := fmt.Sprintf("SOAK: step %d: %s of %s %s", d.Step, d.Kind, d.Target, d.Detail)
			if d.Until.After(d.At) {
				text += " for " + d.Until.Sub(d.At).Round(10*time.Millisecond).String()
			}
			all = append(all, moment{d.At, text})
		}
	}
	slices.SortStableFunc(all, byTime)
	text := make([]string, len(all))
	for i, m := range all {
		text[i] = clock(m.at) + "  " + m.text
	}
	return text
}
