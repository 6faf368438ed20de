package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// printHostJSON prints an event a line. A closed output does not stop the apply.
func printHostJSON(w io.Writer) func(machost.Event) {
	encoder := json.NewEncoder(w)
	return func(e machost.Event) { _ = encoder.Encode(e) }
}

// hostMarks begin the lines that people read.
var hostMarks = map[machost.Phase]string{
	machost.PhaseApplying:  "..",
	machost.PhaseUnchanged: "ok",
	machost.PhasePlanned:   "->",
	machost.PhaseApplied:   "ok",
	machost.PhaseDeferred:  "--",
	machost.PhaseFailed:    "!!",
	machost.PhaseConfirm:   "..",
	machost.PhaseDone:      "ok",
}

// hostWords say the same in words.
var hostWords = map[machost.Phase]string{
	machost.PhaseApplying:  "changing",
	machost.PhaseUnchanged: "up to date",
	machost.PhasePlanned:   "would change",
	machost.PhaseApplied:   "changed, and verified",
	machost.PhaseDeferred:  "deferred until no virtual machine runs",
	machost.PhaseFailed:    "FAILED",
	machost.PhaseConfirm:   "waiting for a confirmation that this Mac is reachable",
	machost.PhaseDone:      "done",
}

// printHostText prints a line a step, and below it what there is to say.
func printHostText(w io.Writer) func(machost.Event) {
	return func(e machost.Event) {
		words := hostWords[e.Phase]
		if e.Step == "" && e.Message != "" {
			words = e.Message
		}
		line := fmt.Sprintf("%s  %-14s %s", hostMarks[e.Phase], e.Step, words)
		if e.Step == "" {
			line = fmt.Sprintf("%s  %s", hostMarks[e.Phase], words)
		}
		_, _ = fmt.Fprintln(w, printable(line))
		if e.Phase == machost.PhaseFailed {
			return // the program says the rest, last of all
		}
		for _, change := range e.Changes {
			_, _ = fmt.Fprintln(w, printable("      "+change))
		}
		if e.Step != "" && e.Message != "" {
			_, _ = fmt.Fprintln(w, printable("      "+e.Message))
		}
	}
}
