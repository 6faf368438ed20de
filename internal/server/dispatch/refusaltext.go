package dispatch

import (
	"fmt"
	"time"
)

// mostRefusals bounds how many refusals are read for messages. Of the others only the number is given.
const mostRefusals = 100

// RefusalText says in one sentence what GitHub refuses for a pool's jobs: the oldest refusal with GitHub's own words and
// the next attempt, and how many others there are. It is empty when there is none.
func RefusalText(of []Refusal) string {
	if len(of) == 0 {
		return ""
	}
	first := of[0]
	text := first.what() + "; next attempt " + first.Next.UTC().Format(time.RFC3339)
	switch more := len(of) - 1; {
	case more == 1:
		text += "; 1 more like it"
	case more >= mostRefusals-1:
		text += fmt.Sprintf("; %d more like it, or more", more)
	case more > 1:
		text += fmt.Sprintf("; %d more like it", more)
	}
	return text
}

func (r Refusal) what() string {
	said := ""
	switch {
	case r.Status != 0 && r.Message != "":
		said = fmt.Sprintf(" (status %d: %s)", r.Status, r.Message)
	case r.Status != 0:
		said = fmt.Sprintf(" (status %d)", r.Status)
	case r.Message != "":
		said = " (" + r.Message + ")"
	}
	switch {
	case r.Reason == NotAssigned:
		return fmt.Sprintf("GitHub gives runners no job of %s%s", r.Repository, said)
	case r.JobID != 0:
		return fmt.Sprintf("GitHub registers no runner for job %d of %s%s", r.JobID, r.Repository, said)
	case r.Repository != "":
		return fmt.Sprintf("GitHub registers no runner for %s%s", r.Repository, said)
	default:
		return fmt.Sprintf("GitHub registers no runner for %s%s", r.Login, said)
	}
}

// textsOf is RefusalText of each pool. A refusal of a whole account belongs to no pool.
func textsOf(refusals []Refusal) map[PoolRef]string {
	by := map[PoolRef][]Refusal{}
	for _, r := range refusals {
		if r.Pool != (PoolRef{}) {
			by[r.Pool] = append(by[r.Pool], r)
		}
	}
	texts := make(map[PoolRef]string, len(by))
	for pool, of := range by {
		texts[pool] = RefusalText(of)
	}
	return texts
}
