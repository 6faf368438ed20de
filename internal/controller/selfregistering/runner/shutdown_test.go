package runner_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

// A node that is being shut down sets no deletionTimestamp on its pods: an idle runner would take jobs until the machine is off.
func TestRunner_EXCL8_ANodeThatShutsDownTakesTheRegistrationsOfIdleRunners(t *testing.T) {
	for name, kind := range map[string]func(*v1alpha1.Runner){"ephemeral": func(*v1alpha1.Runner) {}, "static": static} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			node := b.env.RegisterNode(t, "node-of-"+b.namespace, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "test", Value: b.namespace, Effect: corev1.TaintEffectNoSchedule}}
			})
			for _, runner := range []string{"idle", "busy"} {
				b.idle(runner, kind)
				b.place(runner, node.Name)
			}
			b.github.Change(b.get("busy").Status.RunnerName, func(r *registeredtest.Runner) { r.Busy = true }) // and its pod does not show it yet
			report := func(message string) {
				t.Helper()
				require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
					now, err := b.env.Kube.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})
					if err != nil {
						return err
					}
					now.Status.Conditions = []corev1.NodeCondition{{
						Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: message, LastTransitionTime: metav1.NewTime(b.now()),
					}}
					_, err = b.env.Kube.CoreV1().Nodes().UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
					return err
				}))
				for _, runner := range []string{"idle", "busy"} {
					b.settle(runner)
				}
			}
			listed := func(runner string) bool {
				_, known := b.github.Get(b.get(runner).Status.RunnerName)
				return known
			}

			report("container runtime is down")
			require.Zero(t, b.github.Calls(registeredtest.Remove), "it may be ready again")
			report("[container runtime is down, node is shutting down]")
			require.False(t, listed("idle"), "it gets no job before the machine is off")
			require.True(t, listed("busy"), "GitHub has refused: it has a job")
			require.Nil(t, b.pod("busy").DeletionTimestamp)
		})
	}
}
