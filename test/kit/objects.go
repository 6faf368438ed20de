package kit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

const (
	patience = 30 * time.Second      // for what a controller of the control plane does
	interval = 20 * time.Millisecond // between two readings of it
)

// Client makes an administrator's typed client for the Kubernetes kinds and those that addToScheme adds.
func (e *Env) Client(t testing.TB, addToScheme ...func(*runtime.Scheme) error) client.WithWatch {
	t.Helper()
	return e.ClientAs(t, e.Config, addToScheme...)
}

// ClientAs is Client for another identity (see As).
func (e *Env) ClientAs(t testing.TB, config *rest.Config, addToScheme ...func(*runtime.Scheme) error) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range append([]func(*runtime.Scheme) error{clientgoscheme.AddToScheme}, addToScheme...) {
		require.NoError(t, add(scheme))
	}
	made, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return made
}

// Owned reports whether a runner pod says for whom it works: by its label, or, where the API server took longer than a pod waits for the label
// (TEN-8), by its annotation.
func Owned(pod *corev1.Pod) bool {
	return pod.Labels[runnerpod.LabelOwner] != "" || pod.Annotations[runnerpod.AnnotationOwnerID] != ""
}

// Kubelet is Client for a user with an administrator's rights that counts as a node: tests that write the status of a
// runner as its node would need it, because only a node says that a busy runner has ended (EXCL-7).
func (e *Env) Kubelet(t testing.TB, addToScheme ...func(*runtime.Scheme) error) client.WithWatch {
	t.Helper()
	return e.ClientAs(t, e.As(t, "kit-kubelet", "system:masters", "system:nodes"), addToScheme...)
}

// AllowDeletion breaks the glass for one runner pod: it can be deleted from now on, in any state (EXCL-7).
func (e *Env) AllowDeletion(t testing.TB, namespace, pod string) {
	t.Helper()
	require.NoError(t, allowDeletion(t.Context(), e.Kube, namespace, pod))
}

// As returns a client configuration for a user in groups: it may do what RBAC and the node authorizer allow them.
func (e *Env) As(t testing.TB, user string, groups ...string) *rest.Config {
	t.Helper()
	config, err := e.Plane.Identity(user, groups...)
	require.NoError(t, err)
	return config
}

// Namespace makes a namespace for this test, waits until pods can be created in it (it has its default
// ServiceAccount), and has it deleted when the test ends.
func (e *Env) Namespace(t testing.TB) string {
	t.Helper()
	ctx := t.Context()
	made, err := e.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: map[string]string{labelNamespace: "true"}, Annotations: map[string]string{"test": t.Name()}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		// Not waited for: no other test uses the name, and the control plane ends with the process.
		require.NoError(t, e.freeRunners(context.WithoutCancel(ctx), made.Name)) // or they would hold it forever (EXCL-7)
		err := e.Kube.CoreV1().Namespaces().Delete(context.WithoutCancel(ctx), made.Name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	})
	require.Eventually(t, func() bool {
		_, err := e.Kube.CoreV1().ServiceAccounts(made.Name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	}, patience, interval, "namespace %s never got its default ServiceAccount", made.Name)
	return made.Name
}

// RegisterNode makes a Node that is ready and has room (64 CPUs, 256 Gi, 500 pods, 100 Ti of disk) but no kubelet. Pods are
// bound to it and stay Pending until the test writes their status. It is removed when the test ends; about 50 s without a
// heartbeat make it not ready. mutate, which may be nil, changes it before it is created.
func (e *Env) RegisterNode(t testing.TB, name string, mutate func(*corev1.Node)) *corev1.Node {
	t.Helper()
	ctx := t.Context()
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("500"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
	}
	wanted := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Registered",
				LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
		},
	}
	if mutate != nil {
		mutate(wanted)
	}
	nodes := e.Kube.CoreV1().Nodes()
	made, err := nodes.Create(ctx, wanted.DeepCopy(), metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		err := nodes.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	})
	// Creation drops the status in some versions and admission adds a not-ready taint; writing the status and the
	// controller manager's reaction make the node schedulable. They read the node at the same time as we do, and
	// may write first.
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Status = wanted.Status
		made, err = nodes.UpdateStatus(ctx, current, metav1.UpdateOptions{})
		return err
	}))
	require.Eventually(t, func() bool {
		current, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, taint := range current.Spec.Taints {
			if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
				return false
			}
		}
		made = current
		return true
	}, patience, interval, "node %s never lost its not-ready taint", name)
	return made
}

// PodToken asks for a ServiceAccount token that is bound to a pod and meant for the given audiences, as the kubelet
// does for a projected volume.
func (e *Env) PodToken(t testing.TB, pod *corev1.Pod, audiences ...string) string {
	t.Helper()
	lifetime := int64(600)
	issued, err := e.Kube.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(t.Context(), pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:         audiences,
			ExpirationSeconds: &lifetime,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return issued.Status.Token
}
