package machost

import "context"

// Report is what came of an Apply or a Plan.
type Report struct {
	Changed  []string // steps that were changed, or in a plan would be
	Deferred []string // steps that wait until no virtual machine runs
}

// Options of Apply and Plan.
type Options struct {
	Host  Host
	Steps []Step
	// Events is told what happens, in order, by one goroutine. Nil: nobody is.
	Events func(Event)
	// Busy says how many virtual machines run on the host. Its error counts as busy.
	Busy func(context.Context) (int, error)
}
