package soak

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bullpen-ci/bullpen/test/soak/check"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

// An API server that is slow for longer than a fault lasts delays the fault. It once failed a drain of two seconds on a busy machine.
func TestFaults_OutlastASlowAPIServer(t *testing.T) {
	const node, pod = schedule.Node1, "bulk-1"
	for _, fault := range []struct {
		name, verb, resource string
		inject               func(*System) error
	}{
		{"drain", "patch", "nodes", func(s *System) error { return s.drainNode(t.Context(), node, time.Millisecond) }},
		{"cordon", "patch", "nodes", func(s *System) error { return s.cordon(t.Context(), node, time.Millisecond) }},
		{"deletions of busy pods", "list", "pods", func(s *System) error { return s.deleteBusyPods(t.Context(), false) }},
		{"deletion allowed", "patch", "pods", func(s *System) error { return s.deletePod(t.Context(), pod, &check.Deed{}) }},
		{"deletion", "delete", "pods", func(s *System) error { return s.deletePod(t.Context(), pod, &check.Deed{}) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			kube := fake.NewClientset(
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: runnerNamespace, Name: pod}})
			var asked atomic.Int32
			kube.PrependReactor(fault.verb, fault.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				if asked.Add(1) > 1 {
					return false, nil, nil
				}
				return true, nil, apierrors.NewTimeoutError("etcd is slow", 1)
			})
			require.NoError(t, fault.inject(&System{kube: kube, github: &gitHub{}}))
			require.Greater(t, asked.Load(), int32(1), "it tried again")
			left, err := kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
			require.NoError(t, err)
			require.False(t, left.Spec.Unschedulable, "no fault leaves a node cordoned")
		})
	}
}
