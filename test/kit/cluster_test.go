package kit_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const (
	patience = 30 * time.Second
	interval = 20 * time.Millisecond
)

func newPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

func TestCluster_IsOnePerProcess(t *testing.T) {
	require.Same(t, kit.Cluster(t), kit.Cluster(t))
}

func TestCluster_ServesTheProductsKinds(t *testing.T) {
	found, err := kit.Cluster(t).Kube.Discovery().ServerResourcesForGroupVersion("bullpen.dev/v1alpha1")
	require.NoError(t, err)
	require.NotEmpty(t, found.APIResources)
}

// The garbage collector is the controller manager's: envtest alone has none, and rules about ownerReferences could
// not be tested.
func TestCluster_GarbageCollectsWhatALostOwnerOwned(t *testing.T) {
	cluster := kit.Cluster(t)
	ctx, namespace := t.Context(), cluster.Namespace(t)
	maps := cluster.Kube.CoreV1().ConfigMaps(namespace)
	owner, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "free"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}, metav1.CreateOptions{})
	require.NoError(t, err)

	require.NoError(t, maps.Delete(ctx, owner.Name, metav1.DeleteOptions{}))

	require.Eventually(t, func() bool {
		_, err := maps.Get(ctx, "owned", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, interval)
	_, err = maps.Get(ctx, "free", metav1.GetOptions{})
	require.NoError(t, err)
}

func TestCluster_ReviewsTokensOfPods(t *testing.T) {
	cluster := kit.Cluster(t)
	ctx, namespace := t.Context(), cluster.Namespace(t)
	_, err := cluster.Kube.CoreV1().ServiceAccounts(namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "runner"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := newPod(namespace, "runner")
	pod.Spec.ServiceAccountName = "runner"
	pod, err = cluster.Kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	token := cluster.PodToken(t, pod, "bullpen-dispatch")
	review := func(audience string) authenticationv1.TokenReviewStatus {
		answer, err := cluster.Kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		return answer.Status
	}

	good := review("bullpen-dispatch")
	require.True(t, good.Authenticated, good.Error)
	require.Equal(t, "system:serviceaccount:"+namespace+":runner", good.User.Username)
	require.Equal(t, authenticationv1.ExtraValue{"runner"}, good.User.Extra["authentication.kubernetes.io/pod-name"])
	require.Equal(t, authenticationv1.ExtraValue{string(pod.UID)}, good.User.Extra["authentication.kubernetes.io/pod-uid"])

	require.False(t, review("another-audience").Authenticated)

	immediately := int64(0)
	require.NoError(t, cluster.Kube.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &immediately}))
	require.Eventually(t, func() bool { return !review("bullpen-dispatch").Authenticated }, patience, interval,
		"the token of a pod that is gone still counts")
}

func TestCluster_RefusesWhatNoRoleAllows(t *testing.T) {
	cluster := kit.Cluster(t)
	ctx, namespace := t.Context(), cluster.Namespace(t)
	limited, err := kubernetes.NewForConfig(cluster.As(t, "reader", "readers"))
	require.NoError(t, err)

	_, err = limited.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	_, err = cluster.Kube.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = cluster.Kube.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "readers"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := limited.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil
	}, patience, interval)
	_, err = limited.CoreV1().Pods(namespace).Create(ctx, newPod(namespace, "refused"), metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

func TestCluster_KeepsNodesToTheirOwn(t *testing.T) {
	cluster := kit.Cluster(t)
	cluster.RegisterNode(t, "mine", nil)
	cluster.RegisterNode(t, "theirs", nil)
	agent, err := kubernetes.NewForConfig(cluster.As(t, "system:node:mine", "system:nodes"))
	require.NoError(t, err)
	patch := []byte(`{"metadata":{"annotations":{"seen":"yes"}}}`)

	_, err = agent.CoreV1().Nodes().Patch(t.Context(), "mine", "application/merge-patch+json", patch, metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = agent.CoreV1().Nodes().Patch(t.Context(), "theirs", "application/merge-patch+json", patch, metav1.PatchOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

func TestCluster_SchedulesOntoARegisteredNode(t *testing.T) {
	cluster := kit.Cluster(t)
	ctx, namespace := t.Context(), cluster.Namespace(t)
	cluster.RegisterNode(t, "bench-seat", nil)
	pod := newPod(namespace, "waiting")
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "bench-seat"}
	_, err := cluster.Kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		current, err := cluster.Kube.CoreV1().Pods(namespace).Get(ctx, "waiting", metav1.GetOptions{})
		return err == nil && current.Spec.NodeName == "bench-seat"
	}, patience, interval)
}

func TestPrivate_SurvivesAnOutageOfItsAPIServer(t *testing.T) {
	cluster := kit.Private(t)
	ctx, namespace := t.Context(), cluster.Namespace(t)

	require.NoError(t, cluster.Plane.StopComponent(ctx, controlplane.APIServer))
	_, err := cluster.Kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	require.Error(t, err)

	require.NoError(t, cluster.Plane.StartComponent(ctx, controlplane.APIServer))
	_, err = cluster.Kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, cluster.Plane.Err())
}
