package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// RECV-4, CLAIM-6, NET-8: under the server's own role, the list is past every cache, and a label comes off only as long as the
// pod is as it was read.
func TestRunnerPods_RECV4_CLAIM6_FreshAndUnchanged(t *testing.T) {
	s := newScene(t)
	pod := s.runner("linux-aaaa", "linux", "linux")
	s.runner("linux-bbbb", "linux", "linux")
	listed, err := s.view.RunnerPods(t.Context())
	require.NoError(t, err)
	require.Len(t, listed, 2)
	seen, _ := s.view.Pod(string(pod.UID))
	require.NoError(t, s.view.StampOwner(t.Context(), seen, dispatch.Account{ID: 7, Login: "acme"}))

	read, there, err := s.view.RunnerPod(t.Context(), s.namespace, pod.Name, string(pod.UID))
	require.NoError(t, err)
	require.True(t, there)
	require.Equal(t, "acme", read.OwnerLabel)
	_, err = s.env.Kube.CoreV1().Pods(s.namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"somebody":"was here"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Error(t, s.view.TakeOffOwner(t.Context(), read), "it has changed since")
	read, _, err = s.view.RunnerPod(t.Context(), s.namespace, pod.Name, string(pod.UID))
	require.NoError(t, err)
	require.NoError(t, s.view.TakeOffOwner(t.Context(), read))
	now, err := s.env.Kube.CoreV1().Pods(s.namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.NotContains(t, now.Labels, runnerpod.LabelOwner)
	require.Equal(t, "true", now.Annotations[runnerpod.AnnotationSafeToEvict], "POOL-9: idle again, it holds no node")
	require.NotContains(t, now.Annotations, runnerpod.AnnotationDoNotDisrupt)

	_, there, err = s.view.RunnerPod(t.Context(), s.namespace, pod.Name, "another-uid")
	require.NoError(t, err)
	require.False(t, there, "another pod of that name")
	_, there, err = s.view.RunnerPod(t.Context(), s.namespace, "linux-cccc", string(pod.UID))
	require.NoError(t, err)
	require.False(t, there)
}
