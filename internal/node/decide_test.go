package node

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// containerViews are all the states of one container.
func containerViews(name string, init bool) []containerView {
	var all []containerView
	for _, flag := range []bool{false, true} {
		all = append(all,
			containerView{Name: name, Init: init, Stage: unstarted, Starting: flag},
			containerView{Name: name, Init: init, Stage: exited, OK: flag},
			containerView{Name: name, Init: init, Stage: running, TermSent: flag},
			containerView{Name: name, Init: init, Stage: running, TermSent: flag, KillSent: true},
			containerView{Name: name, Init: init, Stage: running, TermSent: flag, Spared: true})
	}
	return all
}

// everyView calls for every view there is of a pod with an init container and another, also for those that the worker would
// not come to.
func everyView(check func(view)) {
	for _, p := range []presence{present, missing, gone} {
		for bits := range 1 << 10 {
			on := func(i int) bool { return bits>>i&1 == 1 }
			for _, i := range containerViews("i", true) {
				for _, m := range containerViews("m", false) {
					check(view{
						Presence: p, Deleting: on(0), Terminal: on(1), HasFinalizer: on(2), StatusCurrent: on(3), Adopted: on(4),
						Refused: on(5), Preparing: on(6), Prepared: on(7), Removed: on(8), KillDue: on(9),
						Containers: []containerView{i, m},
					})
				}
			}
		}
	}
}

func has(steps []action, verbs ...verb) bool {
	return slices.ContainsFunc(steps, func(a action) bool { return slices.Contains(verbs, a.Verb) })
}

func TestDecide_NODE2_TheObjectStaysUntilTheSandboxIsGone(t *testing.T) {
	everyView(func(v view) {
		if steps := decide(v); has(steps, doDropFinalizer, doDelete) && !v.Removed {
			t.Fatalf("%v while the sandbox is still there: %+v", steps, v)
		}
	})
}

func TestDecide_NothingIsStoppedWithoutAnOrder(t *testing.T) {
	everyView(func(v view) {
		ordered := v.Presence == gone || v.Presence == present && (v.Deleting || v.Terminal)
		if steps := decide(v); has(steps, doTerminate, doKill, doRemove, doCancelStarts) && !ordered {
			t.Fatalf("%v without an order: %+v", steps, v)
		}
	})
}

func TestDecide_NothingIsRemovedWhileItRuns(t *testing.T) {
	everyView(func(v view) {
		busy := slices.ContainsFunc(v.Containers, func(c containerView) bool { return c.Stage == running || c.Starting })
		if steps := decide(v); has(steps, doRemove, doDropFinalizer, doDelete) && (busy || v.Preparing) {
			t.Fatalf("%v: %+v", steps, v)
		}
	})
}

func TestDecide_NothingIsStartedTwiceOrForAPodThatIsToEnd(t *testing.T) {
	everyView(func(v view) {
		for _, a := range decide(v) {
			if a.Verb != doStart {
				continue
			}
			i := slices.IndexFunc(v.Containers, func(c containerView) bool { return c.Name == a.Container })
			if v.Containers[i].Stage != unstarted || v.Deleting || v.Terminal || v.Presence != present || !v.HasFinalizer || !v.Prepared || !v.Adopted {
				t.Fatalf("starts %s: %+v", a.Container, v)
			}
			for _, earlier := range v.Containers[:i] {
				if earlier.Init && (earlier.Stage != exited || !earlier.OK) {
					t.Fatalf("starts %s before %s has succeeded: %+v", a.Container, earlier.Name, v)
				}
			}
		}
	})
}

// simulate carries steps out as the worker and a willing world would, and returns the verbs in order.
func simulate(t *testing.T, v view) []verb {
	var history []verb
	for range 60 {
		steps := decide(v)
		for _, a := range steps {
			history = append(history, a.Verb)
			if a.Verb == doFinish {
				return history
			}
			carryOut(&v, a)
		}
		if len(steps) == 0 && !settle(&v) {
			t.Fatalf("stuck after %v: %+v", history, v)
		}
	}
	t.Fatalf("no end after %v: %+v", history, v)
	return nil
}

func carryOut(v *view, a action) {
	i := slices.IndexFunc(v.Containers, func(c containerView) bool { return c.Name == a.Container })
	switch a.Verb {
	case doAdopt:
		v.Adopted = true
	case doConfirmGone:
		v.Presence = gone
	case doWrite:
		v.StatusCurrent = true
	case doRemove:
		v.Removed = true
	case doDropFinalizer:
		v.HasFinalizer = false
	case doDelete:
		v.Presence = missing
	case doCancelStarts:
		v.Preparing = false
		for i := range v.Containers {
			v.Containers[i].Starting = false
		}
	case doTerminate:
		v.Containers[i].TermSent = true
	case doKill:
		v.Containers[i].KillSent = true
		v.Containers[i].Stage, v.StatusCurrent = exited, false
	}
}

// settle lets time pass: containers that were asked to end do not, so the grace period runs out.
func settle(v *view) bool {
	stopping := slices.ContainsFunc(v.Containers, func(c containerView) bool { return c.Stage == running && c.TermSent })
	ok := stopping && !v.KillDue
	v.KillDue = v.KillDue || stopping
	return ok
}

func TestDecide_NODE1_WhateverIsDeletedGoes(t *testing.T) {
	everyView(func(v view) {
		killed := slices.ContainsFunc(v.Containers, func(c containerView) bool { return c.KillSent || c.Spared })
		// Carrying out a requested kill is the sandbox's duty; fields that cannot matter here keep one value.
		if v.Presence != present || !v.Deleting || killed || v.Refused || v.KillDue || v.Containers[0].Starting {
			return
		}
		if history := simulate(t, v); !slices.Contains(history, doDelete) {
			t.Fatalf("the object was never deleted: %v", history)
		}
	})
}

func TestDecide_NODE1_ASucceededPodThatIsDeletedLosesItsFinalizer(t *testing.T) {
	v := view{
		Adopted: true, Deleting: true, Terminal: true, HasFinalizer: true, StatusCurrent: true,
		Containers: []containerView{{Name: "m", Stage: exited, OK: true}},
	}
	require.Equal(t, []action{{Verb: doRemove}}, decide(v))
	v.Removed = true
	require.Equal(t, []action{{Verb: doDropFinalizer}}, decide(v))
	v.HasFinalizer = false
	require.Equal(t, []action{{Verb: doDelete}}, decide(v))
}

func TestDecide_RunsInitContainersInOrderThenAllOthersAtOnce(t *testing.T) {
	v := view{Adopted: true, StatusCurrent: true, Containers: []containerView{{Name: "i1", Init: true}, {Name: "i2", Init: true}, {Name: "m1"}, {Name: "m2"}}}
	require.Equal(t, []action{{Verb: doWrite}}, decide(v), "the finalizer first")
	v.HasFinalizer = true
	require.Equal(t, []action{{Verb: doPrepare}}, decide(v))
	v.Prepared = true
	require.Equal(t, []action{{doStart, "i1"}}, decide(v))
	v.Containers[0].Stage = running
	require.Empty(t, decide(v))
	v.Containers[0].Stage = exited
	require.Empty(t, decide(v), "i1 failed")
	v.Containers[0].OK = true
	require.Equal(t, []action{{doStart, "i2"}}, decide(v))
	v.Containers[1].Stage, v.Containers[1].OK = exited, true
	require.Equal(t, []action{{doStart, "m1"}, {doStart, "m2"}}, decide(v))
	v.Refused = true
	require.Empty(t, decide(v))
}

// A preStop hook that is being ended, and TERM after it, come before KILL.
func TestDecide_NothingIsKilledBeforeItsHookIsOver(t *testing.T) {
	everyView(func(v view) {
		for _, a := range decide(v) {
			i := slices.IndexFunc(v.Containers, func(c containerView) bool { return c.Name == a.Container })
			if a.Verb == doKill && v.Containers[i].Spared {
				t.Fatalf("kills %s: %+v", a.Container, v)
			}
		}
	})
}

func TestDecide_SidecarsStartInOrderAndStopInReverse(t *testing.T) {
	v := view{
		Adopted: true, StatusCurrent: true, HasFinalizer: true, Prepared: true,
		Containers: []containerView{{Name: "s1", Init: true, Sidecar: true}, {Name: "s2", Init: true, Sidecar: true}, {Name: "m"}},
	}
	s1, s2, m := &v.Containers[0], &v.Containers[1], &v.Containers[2]
	require.Equal(t, []action{{doStart, "s1"}}, decide(v))
	s1.Stage = running
	require.Empty(t, decide(v), "its startup probe has not succeeded")
	s1.Up = true
	require.Equal(t, []action{{doStart, "s2"}}, decide(v))
	s2.Stage, s2.Up = running, true
	require.Equal(t, []action{{doStart, "m"}}, decide(v))
	m.Stage = running
	require.Empty(t, decide(v))

	deleted := v
	deleted.Deleting = true
	require.Equal(t, []action{{doTerminate, "m"}}, decide(deleted))
	m.Stage, m.OK = exited, true
	require.Equal(t, []action{{doTerminate, "s2"}}, decide(v), "the pod is over")
	s2.TermSent = true
	require.Empty(t, decide(v))
	s2.Stage = exited
	require.Equal(t, []action{{doTerminate, "s1"}}, decide(v))
	v.KillDue = true
	require.Equal(t, []action{{doKill, "s1"}}, decide(v))
	s1.Stage = exited
	require.Empty(t, decide(v))
}
