package node

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// anyView draws from all views, also those that the worker would not come to.
func anyView(t *rapid.T) view {
	v := view{
		Presence: rapid.SampledFrom([]presence{present, missing, gone}).Draw(t, "presence"),
		Deleting: rapid.Bool().Draw(t, "deleting"), Terminal: rapid.Bool().Draw(t, "terminal"),
		HasFinalizer: rapid.Bool().Draw(t, "finalizer"), StatusCurrent: rapid.Bool().Draw(t, "current"),
		Adopted: rapid.Bool().Draw(t, "adopted"), Refused: rapid.Bool().Draw(t, "refused"), Preparing: rapid.Bool().Draw(t, "preparing"),
		Prepared: rapid.Bool().Draw(t, "prepared"), Removed: rapid.Bool().Draw(t, "removed"), KillDue: rapid.Bool().Draw(t, "killDue"),
	}
	for i, name := range []string{"i1", "i2", "m1", "m2"} {
		c := containerView{
			Name: name, Init: i < 2, Stage: rapid.SampledFrom([]stage{unstarted, running, exited}).Draw(t, name),
			OK: rapid.Bool().Draw(t, name+"ok"), TermSent: rapid.Bool().Draw(t, name+"term"), KillSent: rapid.Bool().Draw(t, name+"kill"),
		}
		c.Starting = c.Stage == unstarted && rapid.Bool().Draw(t, name+"starting")
		v.Containers = append(v.Containers, c)
	}
	return v
}

func has(steps []action, verbs ...verb) bool {
	return slices.ContainsFunc(steps, func(a action) bool { return slices.Contains(verbs, a.Verb) })
}

func TestDecide_NODE2_TheObjectStaysUntilTheSandboxIsGone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyView(t)
		if steps := decide(v); has(steps, doDropFinalizer, doDelete) && !v.Removed {
			t.Fatalf("%v while the sandbox is still there: %+v", steps, v)
		}
	})
}

func TestDecide_NothingIsStoppedWithoutAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyView(t)
		ordered := v.Presence == gone || v.Presence == present && (v.Deleting || v.Terminal)
		if steps := decide(v); has(steps, doTerminate, doKill, doRemove, doCancelStarts) && !ordered {
			t.Fatalf("%v without an order: %+v", steps, v)
		}
	})
}

func TestDecide_NothingIsStartedTwiceOrForAPodThatIsToEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyView(t)
		for _, a := range decide(v) {
			if a.Verb != doStart {
				continue
			}
			i := slices.IndexFunc(v.Containers, func(c containerView) bool { return c.Name == a.Container })
			if v.Containers[i].Stage != unstarted || v.Deleting || v.Terminal || v.Presence != present || !v.HasFinalizer || !v.Prepared || !v.Adopted {
				t.Fatalf("starts %s: %+v", a.Container, v)
			}
			for _, earlier := range v.Containers[:i] {
				if earlier.Init && !(earlier.Stage == exited && earlier.OK) {
					t.Fatalf("starts %s before %s has succeeded: %+v", a.Container, earlier.Name, v)
				}
			}
		}
	})
}

// simulate carries steps out as the worker and a willing world would, and returns the verbs in order.
func simulate(t *rapid.T, v view) []verb {
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
	rapid.Check(t, func(t *rapid.T) {
		v := anyView(t)
		v.Presence, v.Deleting = present, true
		for i := range v.Containers { // a container that was killed and still runs is the sandbox's to end
			v.Containers[i].KillSent = false
		}
		history := simulate(t, v)
		if !slices.Contains(history, doDelete) {
			t.Fatalf("the object was never deleted: %v", history)
		}
	})
}

func TestDecide_ASucceededPodThatIsDeletedLosesItsFinalizer_NODE1(t *testing.T) {
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
