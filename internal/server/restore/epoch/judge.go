package epoch

import (
	"errors"
	"fmt"
	"time"
)

// Mark is a place in the life of a database. The zero value is no mark.
type Mark struct {
	Lineage string
	Epoch   int64
}

// String writes a mark for people.
func (m Mark) String() string {
	if m.Lineage == "" {
		return "none"
	}
	return fmt.Sprintf("%s/%d", m.Lineage, m.Epoch)
}

// behind reports that a database at m has lost something of what is known.
func (m Mark) behind(known Mark) bool {
	return known.Lineage != "" && (m.Lineage != known.Lineage || m.Epoch < known.Epoch)
}

// Turn is the right to rebuild, in one hold, of one replica at a time. A replica that was stopped for longer than its lease
// may find that another has it: then everything that it writes is refused with ErrTurnOver.
type Turn string

// ErrTurnOver: the hold is over, or another has begun, or another replica rebuilds.
var ErrTurnOver = errors.New("the turn to rebuild the ledger is over")

// Row is the database's row. Times are the database's, so that replicas whose clocks differ agree about them.
type Row struct {
	Mark
	Now      time.Time
	BeatenAt time.Time // when the epoch was last raised
	Copied   bool      // a copy of it was written to Kubernetes at some time

	HoldUntil time.Time // zero: there is no hold
	Over      Mark      // the highest that was known of the former database when the hold began
	Reason    string
	LostSince time.Time // what was committed later may be lost; zero: everything
	RebuiltAt time.Time // when the last rebuilding that succeeded began
	Doubts    int       // what that one could not find out
}

// Copy is what Kubernetes says.
type Copy struct {
	Mark
	Missing    bool // it was read, and there is none
	Unreadable bool // it could not be read
}

// View is what a replica knows.
type View struct {
	Known Mark // the highest that this replica has seen, in database or copy; zero after its start
	Copy  Copy
	Row   Row
	// Unexplained indicates that the cluster shows busy pods that the database does not know.
	Unexplained bool
	// UnreadableFor is how long the copy could not be read since the replica has started.
	UnreadableFor time.Duration
}

// Bounds of the decision.
type Bounds struct {
	Hold time.Duration // how long nothing is dispatched after a restore
	// Patience is how long a replica that has just started waits for a copy that it cannot read, before it takes the
	// database for a restored one; and by how much a hold may exceed its time because of doubts.
	Patience time.Duration
}

// Step is what a replica does next.
type Step int

// The steps. Only Run dispatches.
const (
	Wait  Step = iota // nothing is known yet: hold still
	Begin             // record the hold, for all replicas
	Hold              // it lasts: rebuild
	End               // it is over: raise the epoch above everything that was seen
	Run
)

// String names the step.
func (s Step) String() string { return [...]string{"wait", "begin", "hold", "end", "run"}[s] }

// Decision is a step, what it is about, and why.
type Decision struct {
	Step Step
	Over Mark // of Begin
	// Lost is when the former database is known to have had more than this one: of Begin, zero for "everything".
	Lost   time.Time
	Reason string
	// Known is what the replica knows from now on.
	Known Mark
}

// knows merges what a replica remembers with the copy, which all replicas share: of two lineages the copy's
// counts.
func (v View) knows() Mark {
	switch {
	case v.Copy.Unreadable || v.Copy.Missing:
		return v.Known
	case v.Copy.Lineage == v.Known.Lineage && v.Known.Epoch > v.Copy.Epoch:
		return v.Known
	default:
		return v.Copy.Mark
	}
}

// Judge decides. It is the only place that knows the signs of a restore.
func Judge(v View, b Bounds) Decision {
	known, row := v.knows(), v.Row
	d := Decision{Known: known}
	switch {
	case !row.HoldUntil.IsZero():
		return judgeHold(d, v, b)
	case row.Mark.behind(known) && row.Lineage != known.Lineage:
		d.Step, d.Over = Begin, known
		d.Reason = fmt.Sprintf("this database (%s) is another one than the fleet was run by (%s): was a new or a different one put in its place?",
			row.Mark, known)
	case row.Mark.behind(known):
		d.Step, d.Over, d.Lost = Begin, known, row.BeatenAt
		d.Reason = fmt.Sprintf("this database (epoch %d, of %s) is older than the one that the fleet was run by (epoch %d): was a backup restored?",
			row.Epoch, row.BeatenAt.UTC().Format(time.RFC3339), known.Epoch)
	case known != Mark{}:
		d.Step, d.Known = Run, row.Mark
	case v.Copy.Unreadable && v.UnreadableFor < b.Patience:
		d.Step, d.Reason = Wait, "the copy of the ledger's epoch cannot be read from Kubernetes, so it is unknown whether this database is the latest"
	case v.Copy.Unreadable:
		d.Step, d.Over, d.Lost = Begin, row.Mark, row.BeatenAt
		d.Reason = "the copy of the ledger's epoch could not be read from Kubernetes for long, so this database is treated like a restored one"
	case row.Copied:
		d.Step, d.Over, d.Lost = Begin, row.Mark, row.BeatenAt
		d.Reason = "the copy of the ledger's epoch is gone from Kubernetes, so this database is treated like a restored one"
	case v.Unexplained:
		d.Step, d.Over = Begin, row.Mark
		d.Reason = "pods are busy that this database does not know: was an empty one put in the place of the former?"
	default: // a first installation, or the first start of a version that keeps epochs
		d.Step, d.Known = Run, row.Mark
	}
	return d
}

// clockSlack is how much later than possible a time in the row may be before the database's clock counts as set back. A transaction's clock
// stands still from its beginning, and the row may have been written since. The ledger's queries use the same minute.
const clockSlack = time.Minute

// judgeHold is for a database in which a hold is written down: for every replica, and across their restarts.
func judgeHold(d Decision, v View, b Bounds) Decision {
	row := v.Row
	d.Reason = row.Reason
	switch {
	case row.Over.behind(d.Known):
		// Another replica has used the former database in between, or this hold is itself part of what was restored.
		d.Step, d.Over = Begin, d.Known
		d.Reason = fmt.Sprintf("other replicas use another database (%s), while this one is frozen; stop them", d.Known)
		if row.Lineage == d.Known.Lineage {
			d.Lost = row.BeatenAt
		}
	case row.HoldUntil.After(row.Now.Add(b.Hold + clockSlack)):
		// The database's clock was set back: the hold begins again, and lasts as long as any other.
		d.Step, d.Over, d.Lost = Begin, row.Over, row.LostSince
	case row.Now.Before(row.HoldUntil):
		d.Step = Hold
	case row.RebuiltAt.Before(row.HoldUntil.Add(-b.Hold/2)) || row.RebuiltAt.After(row.Now):
		d.Step = Hold // what is known is from the hold's beginning, or nothing is: then nothing is safe
		d.Reason += "; it stays frozen until pods and GitHub's runners can be read"
	case row.Doubts > 0 && row.Now.Before(row.HoldUntil.Add(b.Patience)):
		d.Step = Hold
		d.Reason += "; it stays frozen because some of GitHub's lists cannot be read"
	default:
		d.Step = End
	}
	return d
}
