package runner_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

// placed makes a Runner whose pod a node has taken, and has not started.
func (b *bench) placed(name string, change ...func(*v1alpha1.Runner)) {
	b.t.Helper()
	b.runner(name, change...)
	b.settle(name)
	node := b.env.RegisterNode(b.t, "node-of-"+b.namespace, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "test", Value: b.namespace, Effect: corev1.TaintEffectNoSchedule}}
	})
	b.place(name, node.Name)
	b.settle(name)
	require.NotEmpty(b.t, b.pod(name).Spec.NodeName)
}

// F 4.6: the kubelet does not start a pod whose Secret is missing, and of one that is mounted it says nothing on the pod. An Event
// and a condition say why, once, and nothing is tried over and over.
func TestRunner_RUN7_F46_AMissingSecretIsSaidOnceAndNothingIsTriedOverAndOver(t *testing.T) {
	for name, lose := range map[string]func(b *bench){
		"its Secret is missing": func(b *bench) { b.delete(b.secret("r")) },
		"its Secret was made again without what it registers with": func(b *bench) {
			was := b.secret("r")
			b.delete(was)
			require.NoError(b.t, b.admin.Create(b.t.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: was.Namespace, Name: was.Name, OwnerReferences: was.OwnerReferences, Annotations: was.Annotations},
			}))
		},
		"its Secret belongs to something else": func(b *bench) {
			was := b.secret("r")
			b.delete(was)
			require.NoError(b.t, b.admin.Create(b.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: was.Namespace, Name: was.Name}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.placed("r")
			lose(b)
			b.written()
			b.pass(20 * time.Second)
			b.settle("r")
			require.Empty(t, b.written(), "a pod may take a moment to start")
			require.Empty(t, b.events())
			b.pass(15 * time.Second)
			b.settle("r")
			c := b.condition("r", v1alpha1.ConditionRegistered)
			require.Equal(t, metav1.ConditionFalse, c.Status)
			require.Contains(t, c.Message, "Secret")
			require.Contains(t, b.get("r").Status.Message, "its Secret is missing or incomplete")
			recorded := b.events()
			require.Len(t, recorded, 2, "one about the pod, one about the Runner")
			require.Contains(t, strings.Join(recorded, "\n"), "SecretMissing The runner cannot start")
			for range 8 {
				b.pass(time.Hour)
				b.settle("r")
			}
			require.Empty(t, b.events())
			require.Equal(t, map[string]int{"patch Pod": 1, "status Runner": 1}, b.written())
			require.Equal(t, 1, b.github.Calls(registeredtest.JIT), "RUN-7: nothing is minted for a pod that exists")
			v := registered.Observe(b.pod("r"))
			seen := v.Runner(registered.Place{}, 0, b.now())
			require.Equal(t, lifecycle.ReasonDefective, seen.Unfit.Reason, "its owner replaces it")
			b.delete(b.get("r"))
			b.settle("r")
			require.Zero(t, b.github.Len(), "and its registration goes with it")
		})
	}
	t.Run("a static one gets another token", func(t *testing.T) {
		b := newBench(t)
		b.placed("r", static)
		first := string(b.secret("r").Data[runnerpod.KeyToken])
		b.delete(b.secret("r"))
		b.pass(35 * time.Second)
		b.settle("r")
		require.NotNil(t, b.secret("r"))
		require.NotEqual(t, first, string(b.secret("r").Data[runnerpod.KeyToken]))
		require.Equal(t, 2, b.github.Calls(registeredtest.Token))
		b.pass(time.Minute)
		b.settle("r")
		require.True(t, registered.Observe(b.pod("r")).SecretMissing.IsZero(), "it may start")
		for range 8 {
			b.settle("r")
		}
		require.Equal(t, 2, b.github.Calls(registeredtest.Token))
		require.Len(t, b.events(), 1)
	})
	t.Run("a runner that has started needs none", func(t *testing.T) {
		b := newBench(t)
		b.idle("r")
		b.delete(b.secret("r"))
		b.written()
		b.pass(time.Hour)
		b.settle("r")
		require.Empty(t, b.written())
		require.Equal(t, "idle", b.get("r").Status.Stage)
	})
}

// K 8.7: a quota that refuses the pod is waited for: with a condition, more and more slowly, and with what was minted once.
func TestRunner_RUN7_K87_AQuotaThatRefusesThePodIsWaitedForWithoutMintingAnew(t *testing.T) {
	b := newBench(t)
	quota := b.quota()
	b.runner("r")
	b.settle("r")
	c := b.condition("r", v1alpha1.ConditionRegistered)
	require.NotNil(t, c)
	require.Equal(t, metav1.ConditionFalse, c.Status)
	require.Equal(t, "PodRefused", c.Reason)
	require.Contains(t, c.Message, "exceeded quota")
	require.Equal(t, c.Message, b.get("r").Status.Message)
	minted := b.secret("r").UID
	b.written()
	for range 60 {
		b.pass(time.Minute)
		for range 3 { // whatever wakes the controller
			b.settle("r")
		}
	}
	tries := b.written()
	require.InDelta(t, 14, tries["create Pod"], 4, "30 s, 1 min, 2 min, 4 min, and then every 5 min")
	require.Equal(t, map[string]int{"create Pod": tries["create Pod"]}, tries, "nothing else is written")
	require.Len(t, b.events(), 1)
	require.Equal(t, []int{1, 1}, []int{b.github.Calls(registeredtest.JIT), b.github.Calls(registeredtest.For)})

	b.delete(quota)
	require.Eventually(t, func() bool { // the API server remembers quotas for a moment
		b.pass(5 * time.Minute)
		b.settle("r")
		return b.pod("r") != nil
	}, 60*time.Second, 200*time.Millisecond)
	require.Equal(t, minted, b.secret("r").UID, "it starts with what was minted first")
	require.Equal(t, 1, b.github.Calls(registeredtest.JIT))
	require.Equal(t, "NotConnected", b.condition("r", v1alpha1.ConditionRegistered).Reason)
}

// quota lets no pod be made in the namespace.
func (b *bench) quota() *corev1.ResourceQuota {
	b.t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	require.NoError(b.t, b.admin.Create(b.t.Context(), quota))
	require.Eventually(b.t, func() bool {
		require.NoError(b.t, b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: quota.Namespace, Name: quota.Name}, quota))
		return len(quota.Status.Hard) > 0
	}, 60*time.Second, 20*time.Millisecond, "the quota is in force")
	return quota
}
