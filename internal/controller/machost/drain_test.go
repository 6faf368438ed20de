package machost_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/machost"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// ready makes a Mac that is prepared and has its Node, and whose next attempts find running VMs.
func (b *bench) ready(names ...string) {
	b.t.Helper()
	for _, name := range names {
		b.register(name)
		b.mac(name)
		b.is(name, machost.StateReady)
	}
	b.macs.returns(busy)
}

func (b *bench) drift() { b.config("fleet", "user: ci\ndhcpLeaseSeconds: 900\n") }

func (b *bench) runners() int {
	var pods corev1.PodList
	require.NoError(b.t, b.admin.List(b.t.Context(), &pods, client.InNamespace(b.namespace)))
	for _, pod := range pods.Items {
		require.Nil(b.t, pod.DeletionTimestamp, "no runner is deleted for this")
	}
	return len(pods.Items)
}

// NODE-3, EXCL-2: a disruptive change waits, on a cordoned Node, for the end of what runs; nothing is ended for it.
func TestDrain_ADisruptiveChangeWaitsForTheBusyMachine(t *testing.T) {
	b := newBench(t)
	b.ready("one")
	require.NoError(t, b.admin.Patch(t.Context(), b.nodeOf("one"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"somebody/elses":"stays"}}}`))))
	end := b.runner("one")
	b.drift()
	b.eventually("cordoned", func() bool { return b.cordonedByUs("one") })
	require.True(t, b.macs.requests()[0].Hold, "a machine may start at any time")
	b.eventually("it says for what it waits", func() bool { _, why := b.state("one"); return strings.Contains(why, "for 1 runners to finish") })
	require.Equal(t, metav1.ConditionFalse, b.condition("one", v1alpha1.ConditionDrained).Status)
	b.stays("one", 10*time.Minute, func() {
		require.Equal(t, 1, b.macs.count(), "there is nothing to try while it runs")
		require.Equal(t, 1, b.runners())
		require.True(t, b.cordonedByUs("one"))
	})
	require.Empty(t, b.events("DrainOverdue"))
	b.pass("one", 6*time.Hour)
	b.eventually("an Event reports it", func() bool { return len(b.events("DrainOverdue")) == 1 })
	require.Equal(t, 1, b.runners())

	b.macs.returns(succeeded)
	end()
	b.is("one", machost.StateReady, 15*time.Second)
	b.eventually("uncordoned", func() bool { return !b.nodeOf("one").Spec.Unschedulable })
	require.Empty(t, b.nodeOf("one").Annotations["bullpen.dev/cordoned-by"])
	require.Empty(t, b.nodeOf("one").Annotations["bullpen.dev/cordoned-at"])
	require.Equal(t, "stays", b.nodeOf("one").Annotations["somebody/elses"])
	require.Equal(t, 1, b.macs.count())
	require.False(t, b.macs.requests()[0].Hold, "none can start any more")
	b.eventually("no drain any more", func() bool { return b.condition("one", v1alpha1.ConditionDrained).Type == "" })
	require.Len(t, b.events("DrainOverdue"), 1)
}

func TestDrain_WhatSomebodyElseHasCordonedStaysCordoned(t *testing.T) {
	b := newBench(t)
	b.ready("one")
	b.personCordons("one", true)
	b.drift()
	b.is("one", machost.StateDraining)
	b.macs.returns(succeeded)
	b.is("one", machost.StateReady, 15*time.Second)
	b.stays("one", time.Minute, func() { require.True(t, b.nodeOf("one").Spec.Unschedulable) })
	require.Empty(t, b.nodeOf("one").Annotations["bullpen.dev/cordoned-by"])
	require.Empty(t, b.events("Uncordoned"))
	require.NotContains(t, b.log.String(), "Reconciler error", "it does not even try: the admission policy is a second guard")
}

// Another MacHost has taken the place of the one by which the Mac was prepared, with another nodeName: the agent of the former Node still takes
// runners, and registers it again if it is deleted.
func TestDrain_NODE3_AMacThatIsStillAnotherNodeIsHeld(t *testing.T) {
	for name, nodeIP := range map[string]string{"found by its address": "", "found by its node IP, without the label of an address": "192.0.2.21"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			mac := func(m *v1alpha1.MacHost) { m.Spec.Address, m.Spec.NodeIP = "mac.example.com", nodeIP }
			b.mac("former", mac)
			b.is("former", machost.StateNodeMissing)
			labels := b.macs.requests()[0].Config.Node.Labels
			b.env.RegisterNode(t, b.node("former"), func(n *corev1.Node) {
				n.Labels[corev1.LabelOSStable] = "darwin"
				if nodeIP != "" {
					n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeIP}}
					return
				}
				maps.Copy(n.Labels, labels)
			})
			require.NoError(t, b.admin.Delete(t.Context(), b.get("former")))
			b.eventually("the controller has seen it", func() bool { return len(b.events("Left")) == 1 })
			b.macs.returns(busy)
			b.mac("one", mac)
			require.Contains(t, b.is("one", machost.StateDraining, time.Second), "kubectl cordon "+b.node("former"))
			require.True(t, b.macs.requests()[0].Hold)
			b.stays("one", time.Minute, func() { require.Equal(t, 1, b.macs.count(), "there is nothing to try until it is cordoned") })
			require.False(t, b.nodeOf("former").Spec.Unschedulable)

			end := b.runner("former")
			b.personCordons("former", true)
			b.stays("one", time.Minute, func() { require.Equal(t, 1, b.macs.count()) })
			b.macs.returns(succeeded)
			end()
			b.is("one", machost.StateNodeMissing, 15*time.Second)
			require.False(t, b.macs.requests()[0].Hold)
			require.True(t, b.nodeOf("former").Spec.Unschedulable)
		})
	}
}

// One Mac of a pool at a time is taken out of service; another pool's does not wait for it.
func TestDrain_OneMacOfAPoolAtATime(t *testing.T) {
	b := newBench(t)
	b.ready("one", "two")
	b.register("three")
	b.macs.returns(succeeded)
	b.mac("three", func(m *v1alpha1.MacHost) { m.Spec.Pool = "other" })
	b.is("three", machost.StateReady)
	b.macs.returns(busy)
	ends := map[string]func(){}
	for _, name := range []string{"one", "two", "three"} {
		ends[name] = b.runner(name)
	}
	b.drift()
	b.is("three", machost.StateDraining)
	first, second := "one", "two"
	b.eventually("one has its turn", func() bool {
		if b.cordonedByUs("two") {
			first, second = "two", "one"
		}
		return b.cordonedByUs(first)
	})
	require.Contains(t, b.is(second, machost.StateWaitingForTurn), first)
	b.stays(second, 10*time.Second, func() { require.False(t, b.nodeOf(second).Spec.Unschedulable) })

	b.macs.returns(succeeded)
	ends[first]()
	b.is(first, machost.StateReady, 15*time.Second)
	b.eventually("then the other", func() bool { return b.cordonedByUs(second) })
	ends[second]()
	b.is(second, machost.StateReady, 15*time.Second)
	b.eventually("and nothing stays cordoned", func() bool { return !b.nodeOf(first).Spec.Unschedulable && !b.nodeOf(second).Spec.Unschedulable })
}

func TestDrain_PausedMeansUncordoned(t *testing.T) {
	b := newBench(t)
	b.ready("one")
	b.runner("one")
	b.drift()
	b.eventually("cordoned", func() bool { return b.cordonedByUs("one") })
	b.edit("one", func(m *v1alpha1.MacHost) { m.Spec.Paused = true })
	b.eventually("uncordoned", func() bool { return !b.nodeOf("one").Spec.Unschedulable })
	b.edit("one", func(m *v1alpha1.MacHost) { m.Spec.Paused = false })
	b.eventually("and cordoned again", func() bool { return b.cordonedByUs("one") })
}

// Another controller goes on wherever the one before it was killed.
func TestRestart_AnotherControllerGoesOn(t *testing.T) {
	b := newBench(t)
	forever := make(chan struct{})
	b.macs.do(until(forever, succeeded))
	b.mac("one")
	b.eventually("an attempt", func() bool { return b.macs.count() == 1 })
	b.restart() // which ends the attempt, wherever it was
	b.is("one", machost.StateBackingOff)
	b.macs.returns(succeeded)
	b.is("one", machost.StateNodeMissing, time.Minute)
	b.register("one")
	b.is("one", machost.StateReady)

	b.macs.returns(busy)
	end := b.runner("one")
	b.drift()
	b.eventually("cordoned", func() bool { return b.cordonedByUs("one") })
	b.restart()
	b.stays("one", time.Minute, func() { require.True(t, b.cordonedByUs("one")) })
	b.macs.do(until(forever, succeeded))
	end()
	b.eventually("an attempt on the drained Mac", func() bool { b.pace("one", 15*time.Second); return b.macs.count() == 1 })
	b.stop()
	require.True(t, b.cordonedByUs("one"), "its effect is unknown")
	b.macs.returns(succeeded)
	b.start()
	b.is("one", machost.StateReady, time.Minute)
	b.eventually("uncordoned", func() bool { return !b.nodeOf("one").Spec.Unschedulable })
	require.Zero(t, b.get("one").Status.Attempts)
}

// The cordon was written and the controller died at once: the mark tells the next one whose it is.
func TestRestart_ACordonIsTakenBackByItsMark(t *testing.T) {
	b := newBench(t)
	b.ready("one")
	b.stop()
	mark := `{"metadata":{"annotations":{"bullpen.dev/cordoned-by":"` + b.namespace + `/one","bullpen.dev/cordoned-at":"` + time.Now().UTC().Format(time.RFC3339) + `"}},"spec":{"unschedulable":true}}`
	require.NoError(t, b.admin.Patch(t.Context(), b.nodeOf("one"), client.RawPatch(types.MergePatchType, []byte(mark))))
	b.start()
	b.eventually("uncordoned", func() bool { return !b.nodeOf("one").Spec.Unschedulable })
}

// Two releases in one cluster: whose MacHosts this controller does not see are not gone.
func TestRestart_AnotherReleasesCordonIsLeftAlone(t *testing.T) {
	b := newBench(t)
	b.register("theirs")
	mark := `{"metadata":{"annotations":{"bullpen.dev/cordoned-by":"another-namespace/theirs"}},"spec":{"unschedulable":true}}`
	require.NoError(t, b.admin.Patch(t.Context(), b.nodeOf("theirs"), client.RawPatch(types.MergePatchType, []byte(mark))))
	b.ready("one")
	b.stays("one", time.Minute, func() { require.True(t, b.nodeOf("theirs").Spec.Unschedulable) })
	require.NotContains(t, b.log.String(), "Reconciler error")
}

func TestDeletion_LeavesTheMacAndItsNode(t *testing.T) {
	b := newBench(t)
	b.ready("one", "two")
	for _, name := range []string{"one", "two"} {
		b.edit(name, func(m *v1alpha1.MacHost) { m.Spec.Pool = name })
		b.runner(name)
	}
	b.drift()
	b.eventually("both cordoned", func() bool { return b.cordonedByUs("one") && b.cordonedByUs("two") })
	require.NoError(t, b.admin.Delete(t.Context(), b.get("one")))
	b.eventually("gone at once", func() bool {
		return apierrors.IsNotFound(b.admin.Get(t.Context(), types.NamespacedName{Namespace: b.namespace, Name: "one"}, &v1alpha1.MacHost{}))
	})
	b.eventually("uncordoned", func() bool { return !b.nodeOf("one").Spec.Unschedulable })
	b.eventually("and said what stays", func() bool { return len(b.events("Left")) == 1 })
	require.Equal(t, 2, b.runners())

	b.stop()
	require.NoError(t, b.admin.Delete(t.Context(), b.get("two")))
	require.True(t, b.cordonedByUs("two"))
	b.start()
	b.eventually("uncordoned by another controller", func() bool { return !b.nodeOf("two").Spec.Unschedulable })
}

// Another MacHost of the same name took its place before the controller came to look.
func TestRestart_ACordonOfAFormerHostOfTheNameIsTakenBack(t *testing.T) {
	b := newBench(t)
	b.ready("one")
	b.stop()
	former := b.register("former")
	mark := `{"metadata":{"annotations":{"bullpen.dev/cordoned-by":"` + b.namespace + `/one"}},"spec":{"unschedulable":true}}`
	require.NoError(t, b.admin.Patch(t.Context(), former, client.RawPatch(types.MergePatchType, []byte(mark))))
	b.start()
	b.eventually("uncordoned", func() bool { return !b.nodeOf("former").Spec.Unschedulable })
}

func TestDeletion_EndsTheAttempt(t *testing.T) {
	b := newBench(t)
	ended := make(chan struct{})
	b.macs.do(func(ctx context.Context, _ int, _ machost.Request) machost.Result {
		<-ctx.Done()
		close(ended)
		return machost.Result{Outcome: machost.OutcomeFailed, Err: ctx.Err()}
	})
	b.mac("one")
	b.eventually("an attempt", func() bool { return b.macs.count() == 1 })
	require.NoError(t, b.admin.Delete(t.Context(), b.get("one")))
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the attempt goes on although its MacHost is gone")
	}
	b.macs.returns(succeeded)
	b.mac("one")
	b.is("one", machost.StateNodeMissing)
}

// NET-8: what the right to patch nodes comes to, by the shipped policy.
func TestCordon_NET8_TheControllerMayCordonMacsAndNothingElse(t *testing.T) {
	b := newBench(t)
	b.stop()
	asController := b.env.ClientAs(t, b.env.As(t, controllerUser, "system:serviceaccounts", "system:authenticated"))
	mac := b.register("mac")
	linux := b.env.RegisterNode(t, b.node("linux"), nil)
	patch := func(node *corev1.Node, text string) error {
		return asController.Patch(t.Context(), node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	const cordon = `{"metadata":{"annotations":{"bullpen.dev/cordoned-by":"a/b"}},"spec":{"unschedulable":true}}`
	const uncordon = `{"metadata":{"annotations":{"bullpen.dev/cordoned-by":null}},"spec":{"unschedulable":null}}`
	refused := func(err error) {
		t.Helper()
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	}
	refused(patch(linux, cordon))
	refused(patch(mac, `{"spec":{"unschedulable":true}}`))
	refused(patch(mac, `{"metadata":{"labels":{"a":"b"}}}`))
	refused(patch(mac, `{"metadata":{"annotations":{"a":"b"}}}`))
	refused(patch(mac, `{"spec":{"taints":null}}`))
	require.NoError(t, patch(mac, cordon))
	refused(patch(mac, `{"spec":{"unschedulable":null}}`))
	require.NoError(t, patch(mac, uncordon))
	b.personCordons("mac", true)
	refused(patch(mac, uncordon))
	refused(patch(mac, `{"metadata":{"annotations":{"bullpen.dev/cordoned-by":"a/b"}}}`)) // a mark afterwards would make another's cordon its own
	refused(asController.List(t.Context(), &corev1.SecretList{}, client.InNamespace("bullpen-system")))
	refused(asController.Get(t.Context(), types.NamespacedName{Namespace: "bullpen-system", Name: "bullpen-github"}, &corev1.Secret{}))
	refused(asController.Get(t.Context(), types.NamespacedName{Namespace: b.namespace, Name: keySecret}, &corev1.Secret{}))
	refused(asController.Delete(t.Context(), mac.DeepCopy()))
	require.NotContains(t, mac.Labels, runnerpod.LabelRunner)
}
