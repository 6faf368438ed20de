package uninstall

import (
	"fmt"
	"slices"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Liveness reports whether a controller runs.
type Liveness int

// The values of Liveness. Unknown lasts until a controller has had the time to show itself.
const (
	Unknown Liveness = iota
	Running
	Gone
)

// Owner is an object that makes runners: a RunnerPool, or a kind of runners that register themselves.
type Owner struct {
	Kind, Name, UID string
	Deleting        bool
	Protected       bool // by a finalizer of ours
	Foreign         []string
}

// Runner is a runner's pod.
type Runner struct {
	Name, UID, ResourceVersion string
	Pool                       string // empty: it registers itself
	Ended, Deleting, Protected bool
	Lost                       bool   // it counts as exited only because its node no longer exists
	Work                       string // the first sign of work, in a sentence
	Node                       string
}

// State is one observation of the namespace of the runners.
type State struct {
	Controller Liveness
	Owners     []Owner
	Runners    []Runner
	// Accounts are the names of runners' ServiceAccounts.
	Accounts []string
	// StatefulSets are the names of those behind runners that register themselves.
	StatefulSets []string
}

// Plan is what to do about a State. With a plan that has no steps there is only Waiting, or nothing at all.
type Plan struct {
	// Delete are owners to delete.
	Delete []Owner
	// Retire are runners to remove once the server grants it.
	Retire []Runner
	// Remove are runners that have ended.
	Remove []Runner
	// Release are owners without runners: their finalizer is removed.
	Release []Owner
	// Accounts to delete: their runners are gone.
	Accounts []string
	// Waiting says what is left that this command does not end.
	Waiting []Waiting
}

// Waiting is one reason to wait.
type Waiting struct {
	Object string `json:"object"` // such as runner linux-x7k2m9qa
	Why    string `json:"why"`
	// Blocked: it needs an administrator.
	Blocked bool `json:"blocked,omitempty"`
}

// Done reports whether nothing is left.
func (s State) Done() bool {
	return len(s.Owners)+len(s.Runners)+len(s.Accounts)+len(s.StatefulSets) == 0
}

// Decide says what to do. While a controller runs, or may run, it alone removes runners and finalizers: two would act on what the other has
// not seen yet. It is pure.
func Decide(s State) Plan {
	var p Plan
	for _, o := range s.Owners {
		if !o.Deleting {
			p.Delete = append(p.Delete, o)
		}
	}
	for _, r := range s.Runners {
		p.runner(s.Controller, r)
	}
	for _, o := range s.Owners {
		p.owner(s, o)
	}
	for _, name := range s.Accounts {
		switch {
		case slices.ContainsFunc(s.Runners, func(r Runner) bool { return r.Name == name }):
		case s.Controller == Gone:
			p.Accounts = append(p.Accounts, name)
		default:
			p.wait(false, "serviceaccount "+name, "the controller removes it")
		}
	}
	for _, name := range s.StatefulSets {
		if s.Controller == Gone {
			p.wait(true, "statefulset "+name, needsController)
			continue
		}
		p.wait(false, "statefulset "+name, "the controller removes it")
	}
	return p
}

const needsController = "only a controller unregisters it at GitHub. Start one, and run this command again"

func (p *Plan) wait(blocked bool, object, why string, args ...any) {
	p.Waiting = append(p.Waiting, Waiting{Object: object, Why: fmt.Sprintf(why, args...), Blocked: blocked})
}

func (p *Plan) runner(controller Liveness, r Runner) {
	object := "runner " + r.Name
	switch {
	case r.Ended && controller == Gone && (!r.Deleting || r.Protected):
		p.Remove = append(p.Remove, r)
	case r.Ended:
		p.wait(false, object, "exited, and is being removed")
	case r.Lost:
		p.wait(controller == Gone, object, "its node %s no longer exists, and only a controller checks with GitHub whether it still runs a job. Start one, and run this command again", r.Node)
	case r.Work != "":
		p.wait(false, object, "busy: %s", r.Work)
	case controller != Gone:
		p.wait(false, object, "the controller removes it")
	case r.Deleting:
		p.wait(false, object, "stopping on node %s", r.Node)
	case r.Pool == "":
		p.wait(true, object, needsController) // RUN-2: nothing else asks GitHub
	default:
		p.Retire = append(p.Retire, r)
	}
}

// owner releases one that has no runner left (POOL-2). A pool's runners are found by its name: their owner references may have been
// removed.
func (p *Plan) owner(s State, o Owner) {
	object := o.Kind + " " + o.Name
	if len(o.Foreign) > 0 {
		p.wait(true, object, "blocked by the finalizer %s, which is not Bullpen's", o.Foreign[0])
	}
	switch {
	case !o.Deleting:
		return
	case !o.Protected && len(o.Foreign) == 0:
		p.wait(false, object, "Kubernetes is deleting it")
		return
	case !o.Protected:
		return
	case s.Controller != Gone:
		p.wait(false, object, "the controller removes its finalizer after its last runner")
		return
	}
	left := func(r Runner) bool { return r.Pool == o.Name }
	if o.Kind != v1alpha1.KindRunnerPool {
		left = func(r Runner) bool { return r.Pool == "" }
		if len(s.StatefulSets) > 0 {
			return // which are waited for
		}
	}
	if !slices.ContainsFunc(s.Runners, left) { // POOL-13
		p.Release = append(p.Release, o)
	}
}

// ours are the finalizers that this command may remove.
func ours(finalizer string) bool {
	return finalizer == runnerpod.FinalizerPoolDrain || finalizer == runnerpod.FinalizerRegistration
}
