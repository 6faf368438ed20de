package scaling

import (
	"fmt"
	"strings"
	"time"
)

// StaleAfter is how old signals may be, by their own time, to be acted upon. It is also the longest gap between two
// passes that leaves earlier observations valid: after a longer one the stabilization window begins again.
const StaleAfter = 30 * time.Second

// Input is everything that a pass reads.
type Input struct {
	Now time.Time
	// Pools in any order, all of them: those that do not autoscale take their room too.
	Pools []Pool
	// Nodes are those on which runners may start now, by name: what each offers to runners.
	Nodes map[string]Room
	// NodesProblem says why Nodes could not be read; empty when they were. Then nothing changes (POOL-8).
	NodesProblem string
	Signals      Signals
}

// Signals are what the server says about all pools.
type Signals struct {
	// Problem says why they could not be read; empty when they were. Then nothing changes (POOL-8).
	Problem string
	// At is when the server took them, Previous the same of the ones before; zero for none.
	At, Previous time.Time
	// Pools by name.
	Pools map[string]Signal
}

// Signal is the demand for one pool, as numbers of runners.
type Signal struct {
	Occupied, Claimed int // with an open session; with a live claim
	Queued            int // jobs that would be handed out now
	Blocked           int // jobs that wait for something else than a runner
	P95               int // 95th percentile of occupied runners over the last hour
}

// Room is an amount of what runners take of a node.
type Room struct {
	MilliCPU int64
	Memory   int64 // bytes
	Pods     int64
	VMs      int64 // slots for macOS virtual machines
	Disk     int64 // bytes of ephemeral storage
}

// Pool is one pool as its spec has it, and what is remembered of it.
type Pool struct {
	// Name is unique. It decides who is first among equals.
	Name string
	// Terminating pools are left alone; the runners that still work take their room (POOL-3).
	Terminating bool
	// Autoscaled pools have their number decided here; the others have Replicas.
	Autoscaled bool
	Replicas   int
	// MinIdle is how many runners wait beyond those that jobs need, Max the most there may be, busy ones included.
	MinIdle, Max int
	// Cooldown is the least time between two steps down, Stabilization how long fewer must have been enough before one.
	Cooldown, Stabilization time.Duration
	// Runner is what one runner takes of a node, the runtime's overhead included.
	Runner Room
	// Nodes are the names of the usable nodes on which its runners may run.
	Nodes []string
	// Elsewhere is how many of its runners are on nodes that are not usable, such as cordoned ones: they take no room
	// on those that are. No more count than are occupied; the others will not be there for long.
	Elsewhere int
	// Problem says what of the above could not be read; empty when all was. Then the pool is left alone (POOL-8).
	Problem string
	// State is what the last pass returned for it, or, after a restart, what was written down.
	State State
}

// State is what one pass leaves to the next.
type State struct {
	// Desired is the number in force, if Decided.
	Desired int
	Decided bool
	// LastScaleDown is when it was last lowered; zero for never.
	LastScaleDown time.Time
	// Seen is when it was last decided with open eyes; zero for never.
	Seen time.Time
	// Window holds what recent passes recommended, oldest first, without those that a later one has outdone.
	Window []Mark
}

// Mark is a recommendation and when it was last made.
type Mark struct {
	At    time.Time
	Count int
}

// Result is what a pass decides for one pool.
type Result struct {
	Name string
	// Desired is the number of runners from now on; equal to State.Desired.
	Desired int
	// Blind says why the number was left alone; empty when it was decided.
	Blind string
	// Target is what the pool would be given if node capacity were unlimited; Recommended what it would be given now
	// without history.
	Target, Recommended int
	// Share is Desired by what it is for.
	Share Share
	// Short says why the nodes have no room for Target; empty when they have.
	Short string
	// Next is when to look again although nothing has changed: a step down may be due. Zero for never.
	Next time.Time
	// State is the input of the next pass.
	State State
}

// Share is a number of runners by what they are for.
type Share struct {
	Load     int // jobs that are running or queued
	Blocked  int // the runner for blocked jobs
	Floor    int // idle runners to keep
	HeadRoom int // for as many as the last hour needed
	Cooldown int // no longer needed, and not released yet
}

// Total of the shares.
func (s Share) Total() int { return s.Load + s.Blocked + s.Floor + s.HeadRoom + s.Cooldown }

// Why explains the number in one line.
func (r Result) Why() string {
	if r.Blind != "" {
		return fmt.Sprintf("%d, unchanged: %s", r.Desired, r.Blind)
	}
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{
		{r.Share.Load, "for jobs"}, {r.Share.Blocked, "for blocked jobs"}, {r.Share.Floor, "idle reserve"},
		{r.Share.HeadRoom, "for the last hour's demand"}, {r.Share.Cooldown, "not scaled down yet"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "no jobs")
	}
	return fmt.Sprintf("%d: %s", r.Desired, strings.Join(parts, ", "))
}
