package check

import (
	"slices"
	"time"
)

// DeedStart is the kind of the deed by which a soak begins, and continues after it was interrupted.
const DeedStart = "start"

// span is a stretch of time.
type span struct{ from, to time.Time }

// pauses are the times in which nothing ran because the soak was interrupted: from the last that any witness saw until
// everything had been started again.
func pauses(e *Evidence) []span {
	var seen []time.Time
	for _, c := range e.Changes {
		seen = append(seen, c.At)
	}
	for _, m := range e.Machines {
		seen = append(seen, m.At)
	}
	for _, p := range e.Pods {
		seen = append(seen, p.At)
	}
	for _, a := range e.Audit {
		seen = append(seen, a.At)
	}
	slices.SortFunc(seen, time.Time.Compare)
	var spans []span
	for _, d := range e.Deeds {
		before, _ := slices.BinarySearchFunc(seen, d.At, time.Time.Compare)
		if d.Kind != DeedStart || before == 0 { // a soak's first start interrupts nothing
			continue
		}
		s := span{seen[before-1], d.Until}
		if !slices.Contains(spans, s) { // each machine's start is a deed of its own
			spans = append(spans, s)
		}
	}
	return spans
}

// elapsed is how long the soak ran between two moments.
func (x *examiner) elapsed(from, to time.Time) time.Duration {
	ran := to.Sub(from)
	for _, pause := range x.index.pauses {
		begins, ends := pause.from, pause.to
		if begins.Before(from) {
			begins = from
		}
		if ends.After(to) {
			ends = to
		}
		if ends.After(begins) {
			ran -= ends.Sub(begins)
		}
	}
	return ran
}
