package cluster_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const serverUser = "system:serviceaccount:bullpen-system:bullpen-server"

// scene is a view under the server's own role, and the changes that it reported.
type scene struct {
	t         *testing.T
	env       *kit.Env
	namespace string
	view      *cluster.View

	mu      sync.Mutex
	changed map[string]dispatch.Pod
	gone    map[string]bool
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, env: kit.Cluster(t), changed: map[string]dispatch.Pod{}, gone: map[string]bool{}}
	s.namespace = s.env.Namespace(t)
	s.env.ShippedRoles(t, s.namespace)
	view, err := cluster.New(cluster.Options{
		Config:    s.env.As(t, serverUser, "system:serviceaccounts", "system:authenticated"), // NET-8
		Namespace: s.namespace,
	})
	require.NoError(t, err)
	s.view = view
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = view.Run(ctx, s) })
	t.Cleanup(func() { cancel(); await.Return(t, wg.Wait, "the view stops") })
	s.eventually("synced", view.Synced)
	return s
}

func (s *scene) PodChanged(pod dispatch.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed[pod.UID] = pod
}

func (s *scene) PodGone(pod dispatch.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[pod.UID] = true
}

func (s *scene) PoolsChanged() {}

func (s *scene) eventually(what string, check func() bool) {
	s.t.Helper()
	require.Eventually(s.t, check, 20*time.Second, 10*time.Millisecond, what)
}

// runner makes a pod and its ServiceAccount as the controller does.
func (s *scene) runner(name string, podPool, accountPool string) *corev1.Pod {
	s.t.Helper()
	meta := func(pool string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: name, Namespace: s.namespace,
			Labels: map[string]string{runnerpod.LabelRunner: "true", runnerpod.LabelPool: pool},
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: meta(accountPool)}
	_, err := s.env.Kube.CoreV1().ServiceAccounts(s.namespace).Create(s.t.Context(), account, metav1.CreateOptions{})
	require.NoError(s.t, err)
	pod := &corev1.Pod{ObjectMeta: meta(podPool), Spec: corev1.PodSpec{
		ServiceAccountName: name,
		Containers: []corev1.Container{
			{Name: runnerpod.ContainerPoller, Image: "x"}, {Name: runnerpod.ContainerRunner, Image: "x"},
		},
	}}
	pod, err = s.env.Kube.CoreV1().Pods(s.namespace).Create(s.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.eventually("the watch shows "+name, func() bool { _, ok := s.view.Pod(string(pod.UID)); return ok })
	return pod
}

// NET-3, NET-4: a token speaks for the pod it is bound to, with the right audience, and for no other.
func TestReview_NET3_NET4_TokenSpeaksForItsOwnPodOnly(t *testing.T) {
	s := newScene(t)
	pod := s.runner("linux-aaaa", "linux", "linux")
	token := s.env.PodToken(t, pod, runnerapi.AudienceDispatch)

	id, err := s.view.Review(t.Context(), token, runnerapi.AudienceDispatch)
	require.NoError(t, err)
	require.Equal(t, string(pod.UID), id.PodUID)
	s.eventually("the ServiceAccount is shown", func() bool { _, ok := s.view.Runner(id); return ok })
	got, _ := s.view.Runner(id)
	require.Equal(t, dispatch.PoolRef{Namespace: s.namespace, Name: "linux"}, got.Pool)

	_, err = s.view.Review(t.Context(), token, runnerapi.AudienceServer)
	require.ErrorIs(t, err, cluster.ErrRejected, "wrong audience")
	_, err = s.view.Review(t.Context(), "made-up", runnerapi.AudienceDispatch)
	require.ErrorIs(t, err, cluster.ErrRejected)
	plain := s.env.PodToken(t, pod) // the API server's own audience, as an automounted token has
	_, err = s.view.Review(t.Context(), plain, runnerapi.AudienceDispatch)
	require.ErrorIs(t, err, cluster.ErrRejected)

	forged := id
	forged.Username = "system:serviceaccount:" + s.namespace + ":linux-bbbb"
	_, ok := s.view.Runner(forged)
	require.False(t, ok, "another pod's ServiceAccount does not speak for this pod")
	forged = id
	forged.PodName = "linux-bbbb"
	_, ok = s.view.Runner(forged)
	require.False(t, ok)
}

// NET-4: where the labels of pod and ServiceAccount disagree about the pool, another client wrote one of
// them.
func TestRunner_NET4_PodAndServiceAccountMustAgreeOnThePool(t *testing.T) {
	s := newScene(t)
	pod := s.runner("linux-cccc", "other-pool", "linux")
	honest := s.runner("linux-dddd", "linux", "linux")
	identity := func(pod *corev1.Pod) cluster.Identity {
		return cluster.Identity{
			Username: "system:serviceaccount:" + s.namespace + ":" + pod.Name, PodName: pod.Name, PodUID: string(pod.UID),
		}
	}
	s.eventually("both ServiceAccounts are shown", func() bool { _, ok := s.view.Runner(identity(honest)); return ok })
	_, ok := s.view.Runner(identity(pod))
	require.False(t, ok)
}

func TestView_POOL9_TEN8_PodsLabelsAndEnds(t *testing.T) {
	s := newScene(t)
	pod := s.runner("linux-eeee", "linux", "linux")
	uid := string(pod.UID)
	shown, _ := s.view.Pod(uid)
	require.NoError(t, s.view.NoteOwner(t.Context(), shown, dispatch.Account{ID: 7, Login: "acme"}))
	s.eventually("the note is shown", func() bool { p, _ := s.view.Pod(uid); return p.OwnerLabel == "" && p.OwnerID == 7 })
	noted, err := s.env.Kube.CoreV1().Pods(s.namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, pod.Labels, noted.Labels, "TEN-8: nothing that a network policy selects by")
	protected := map[string]string{
		"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true",
		"bullpen.dev/runner-pool-owner-id": "7",
	}
	require.Equal(t, protected, noted.Annotations, "POOL-9: also where the label could not be written in time")

	require.NoError(t, s.view.StampOwner(t.Context(), shown, dispatch.Account{ID: 7, Login: "acme"}))
	s.eventually("the label is shown", func() bool { p, _ := s.view.Pod(uid); return p.OwnerLabel == "acme" && p.OwnerID == 7 })

	stamped, err := s.env.Kube.CoreV1().Pods(s.namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, protected, stamped.Annotations, "POOL-9: from the first sign of work on, no autoscaler takes its node away")

	// R5: a pod begins as one that the cluster autoscaler may move, and what says otherwise comes with the label, in the same write.
	patch := []byte(`{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/safe-to-evict":"true"}}}`)
	another := s.runner("linux-ffff", "linux", "linux")
	another, err = s.env.Kube.CoreV1().Pods(s.namespace).Patch(t.Context(), another.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	changes, err := s.env.Kube.CoreV1().Pods(s.namespace).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + another.Name, ResourceVersion: another.ResourceVersion,
	})
	require.NoError(t, err)
	defer changes.Stop()
	seen, _ := s.view.Pod(string(another.UID))
	require.NoError(t, s.view.StampOwner(t.Context(), seen, dispatch.Account{ID: 7, Login: "acme"}))
	for {
		change := await.Receive(t, changes.ResultChan(), "the label")
		busy, is := change.Object.(*corev1.Pod)
		require.True(t, is)
		if busy.Labels[runnerpod.LabelOwner] == "" {
			require.Equal(t, "true", busy.Annotations[runnerpod.AnnotationSafeToEvict])
			require.Empty(t, busy.Annotations[runnerpod.AnnotationDoNotDisrupt])
			continue
		}
		require.Equal(t, "false", busy.Annotations[runnerpod.AnnotationSafeToEvict], "in no additional write")
		require.Equal(t, "true", busy.Annotations[runnerpod.AnnotationDoNotDisrupt])
		break
	}

	stranger := shown
	stranger.UID = "00000000-0000-0000-0000-000000000000"
	require.NoError(t, s.view.StampOwner(t.Context(), stranger, dispatch.Account{ID: 8, Login: "mallory"}), "another pod of that name is left alone")
	now, err := s.env.Kube.CoreV1().Pods(s.namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "acme", now.Labels[runnerpod.LabelOwner])

	end := func(code int32) {
		t.Helper()
		require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the scheduler writes it too
			now, err := s.env.Kube.CoreV1().Pods(s.namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			now.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name:  runnerpod.ContainerPoller,
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "x"}},
			}}
			_, err = s.env.Kube.CoreV1().Pods(s.namespace).UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
			return err
		}))
	}
	end(0)
	s.eventually("the poller's end is shown", func() bool { p, _ := s.view.Pod(uid); return p.PollerEnded })

	gone, err := s.view.Gone(t.Context(), s.namespace, pod.Name, uid)
	require.NoError(t, err)
	require.False(t, gone)
	s.env.AllowDeletion(t, s.namespace, pod.Name)
	zero := int64(0)
	require.NoError(t, s.env.Kube.CoreV1().Pods(s.namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	s.eventually("its end is reported", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.gone[uid] })
	gone, err = s.view.Gone(t.Context(), s.namespace, pod.Name, uid)
	require.NoError(t, err)
	require.True(t, gone)
}

func TestView_PoolsAsDispatchNeedsThem(t *testing.T) {
	s := newScene(t)
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "linux"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{"linux-4cpu"}, Queueing: v1alpha1.QueueingFairShare,
			Resources:   v1alpha1.RunnerResources{CPU: resource.MustParse("1500m"), Memory: resource.MustParse("2Gi")},
			Template:    v1alpha1.RunnerTemplate{Image: "runner:1"},
			RunnerGroup: ptr.To(intstr.FromInt32(7)),
		},
	}
	require.NoError(t, s.env.Client(t, v1alpha1.AddToScheme).Create(t.Context(), pool))
	ref := dispatch.PoolRef{Namespace: s.namespace, Name: "linux"}
	s.eventually("the pool is shown", func() bool { _, ok := s.view.Pool(ref); return ok })
	got, _ := s.view.Pool(ref)
	require.Equal(t, dispatch.Pool{
		Namespace: s.namespace, Name: "linux", Labels: []string{"linux-4cpu"}, Platform: fleet.Linux,
		Shape: fleet.Shape{MilliCPU: 1500, MemoryMB: 2048}, RunnerGroupID: 7, FairShare: true,
	}, got)
}
