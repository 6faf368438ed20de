package containers

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is what a fault does.
type Kind string

// The faults. Those of the registry concern the controller, which resolves images, and the node, which pulls them.
const (
	RegistryFails    Kind = "registry-fails"    // it answers with 503
	RegistryHangs    Kind = "registry-hangs"    // it accepts requests and does not respond
	RegistryCuts     Kind = "registry-cuts"     // it ends its responses in the middle
	CourierKilled    Kind = "courier-killed"    // of a runner: what takes its requests to the controller, and back
	ControllerKilled Kind = "controller-killed" // the processes of all replicas
	ServerKilled     Kind = "server-killed"
	KubeletKilled    Kind = "kubelet-killed"
	RuntimeKilled    Kind = "containerd-killed"
	APIStopped       Kind = "api-stopped" // the API server
)

// Kinds are all of them.
var Kinds = []Kind{RegistryFails, RegistryHangs, RegistryCuts, CourierKilled, ControllerKilled, ServerKilled, KubeletKilled, RuntimeKilled, APIStopped}

// Excuses reports whether a job may fail because of a fault of this kind: an image that its registry does not serve cannot be run.
func (k Kind) Excuses() bool { return k == RegistryFails || k == RegistryHangs || k == RegistryCuts }

// Fault is one fault.
type Fault struct {
	At     time.Duration // since the soak began
	Kind   Kind
	For    time.Duration // 0: it is over at once
	Choice uint32        // picks one of what there is at that moment
}

func (f Fault) String() string {
	if f.For == 0 {
		return fmt.Sprintf("%s at %s", f.Kind, f.At)
	}
	return fmt.Sprintf("%s at %s for %s", f.Kind, f.At, f.For)
}

// Job is one job. Each has images of its own, which no node has yet.
type Job struct {
	Number int // from 1
	At     time.Duration
	// InContainer says that its steps run in a container; else they run beside its service.
	InContainer bool
	// Action says that it has a step in an image of its own.
	Action bool
	// Holds is how long its longest step takes.
	Holds time.Duration
	// CancelAfter is when a user cancels it, counted from its start at GitHub; 0: never.
	CancelAfter time.Duration
}

// Options of Make.
type Options struct {
	Seed         uint64 // decides everything
	Jobs, Faults int
	Length       time.Duration // over which both are spread
	Kinds        []Kind        // of the faults; all when empty
}

// Schedule is what happens, in the order of time.
type Schedule struct {
	Jobs   []Job
	Faults []Fault
}

// Make returns the schedule of a seed. The first faults are one of each kind, in a random order, so that a soak of few has different ones. Only
// one is going on at a time: with two, none could be blamed.
func Make(o Options) Schedule {
	random := rand.New(rand.NewPCG(o.Seed, 0)) //nolint:gosec // reproducible, not secret
	within := func(low, high time.Duration) time.Duration {
		return low + time.Duration(random.Int64N(int64(high-low))).Truncate(time.Millisecond)
	}
	var s Schedule
	for n := range o.Jobs {
		job := Job{Number: n + 1, At: within(0, o.Length), InContainer: random.IntN(3) > 0, Holds: within(0, 8*time.Second)}
		job.Action = job.InContainer && random.IntN(2) == 0
		if random.IntN(8) == 0 {
			job.CancelAfter = within(time.Second, 10*time.Second)
		}
		s.Jobs = append(s.Jobs, job)
	}
	slices.SortStableFunc(s.Jobs, func(a, b Job) int { return cmp.Compare(a.At, b.At) })
	of := o.Kinds
	if len(of) == 0 {
		of = Kinds
	}
	var kinds []Kind
	for len(kinds) < o.Faults {
		for _, i := range random.Perm(len(of)) {
			kinds = append(kinds, of[i])
		}
	}
	slot := o.Length / time.Duration(max(o.Faults, 1))
	for n := range o.Faults {
		f := Fault{Kind: kinds[n], Choice: random.Uint32(), At: time.Duration(n)*slot + within(0, max(slot/3, time.Millisecond))}
		switch {
		case f.Kind == RegistryHangs: // longer than the controller waits for a registry, sometimes
			f.For = within(time.Second, max(slot/2, 2*time.Second))
		case f.Kind.Excuses(), f.Kind == APIStopped:
			f.For = within(time.Second, min(max(slot/2, 2*time.Second), 10*time.Second))
		}
		s.Faults = append(s.Faults, f)
	}
	return s
}
