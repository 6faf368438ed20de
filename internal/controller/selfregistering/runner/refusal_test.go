package runner_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// POOL-10: a deletion that the API server refuses shows in a condition a minute after the first attempt, also across a restart, with the reason.
func TestRunner_POOL10_ARefusedDeletionIsSeen(t *testing.T) {
	b := newBench(t)
	r := b.idle("r")
	b.refuse = func(what string, _ client.Object) error {
		if what == "delete Pod" {
			return errors.New(`admission webhook "guard.example" denied the request`)
		}
		return nil
	}
	try := func() {
		_, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: key(b.namespace, "r")})
		require.ErrorContains(t, err, "guard.example")
	}
	b.delete(r)
	try()
	require.Equal(t, metav1.ConditionFalse, b.condition("r", v1alpha1.ConditionStuckTerminating).Status)
	b.restart()
	b.pass(removal.RefusedAfter)
	try()
	stuck := b.condition("r", v1alpha1.ConditionStuckTerminating)
	require.Equal(t, metav1.ConditionTrue, stuck.Status)
	require.Contains(t, stuck.Message, "guard.example")
	b.pass(time.Hour)
	require.WithinDuration(t, b.now().Add(-time.Hour-removal.RefusedAfter), registered.RefusalIn(b.get("r").Status.Conditions).Since, time.Minute/2)

	b.mu.Lock()
	b.refuse = nil
	b.mu.Unlock()
	_, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: key(b.namespace, "r")})
	require.NoError(t, err)
	require.Nil(t, b.condition("r", v1alpha1.ConditionStuckTerminating), "it is deleted, and may take its time")
}

// EXCL-7: a lost runner that is busy after all is protected again. The proof that was written on its pod before a deletion that failed would
// let any client delete it.
func TestRunner_EXCL7_ALostRunnerThatIsBusyAfterAllIsProtectedAgain(t *testing.T) {
	b := newBench(t)
	node := b.env.RegisterNode(t, "node-of-"+b.namespace, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "test", Value: b.namespace, Effect: corev1.TaintEffectNoSchedule}}
	})
	b.runner("r")
	b.settle("r")
	b.place("r", node.Name)
	b.makeIdle("r")
	b.settle("r")
	b.makeBusy("r")
	b.settle("r")
	b.refuse = func(what string, _ client.Object) error {
		if what == "delete Pod" {
			return errors.New("the API server does not respond")
		}
		return nil
	}
	require.NoError(t, b.env.Kube.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}))
	b.settle("r")
	b.pass(2 * time.Minute)
	b.settle("r")
	require.NotEmpty(t, b.pod("r").Annotations[runnerpod.AnnotationAllowDeletion], "GitHub has removed its registration")

	b.github.AnswerRemovals(func(registration.Subject) *lifecycle.Answer {
		return &lifecycle.Answer{Verdict: lifecycle.Busy, Detail: "it has registered again"}
	})
	b.mu.Lock()
	b.refuse = nil
	b.mu.Unlock()
	b.pass(2 * time.Minute)
	b.settle("r")
	require.Nil(t, b.pod("r").DeletionTimestamp)
	require.Empty(t, b.pod("r").Annotations[runnerpod.AnnotationAllowDeletion])
}
