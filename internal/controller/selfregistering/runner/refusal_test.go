package runner_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
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
