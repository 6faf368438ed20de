package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// statusWrites is how many pods' statuses an agent writes concurrently. A kubelet writes one at a time. Without a bound, nodes whose pods
// all change at once fill the request queue of a busy API server; rejected requests are retried on top of new ones, and hardly any write
// succeeds. Two: a request that hangs does not block the other.
const statusWrites = 2

// cluster is what the agent asks of the API server: no more than a node may.
type cluster struct {
	kube    kubernetes.Interface
	timeout time.Duration // of a write of a pod's status, once it has its turn
	turns   chan struct{} // statusWrites
}

func newCluster(kube kubernetes.Interface, timeout time.Duration) cluster {
	return cluster{kube: kube, timeout: timeout, turns: make(chan struct{}, statusWrites)}
}

func (c cluster) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return c.kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c cluster) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return c.kube.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c cluster) Token(ctx context.Context, pod *corev1.Pod, audience string, lifetime time.Duration) (string, time.Time, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(lifetime / time.Second)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	got, err := c.kube.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, err
	}
	return got.Status.Token, got.Status.ExpirationTimestamp.Time, nil
}

// findPod asks the API server itself, not a cache, for the pod of that UID bound to the node; nil when there is none. A node is
// refused (Forbidden, not NotFound) when it gets a pod that does not exist, so this is a consistent list of what is bound to it.
func (c cluster) findPod(ctx context.Context, nodeName string, ref sandbox.PodRef) (*corev1.Pod, error) {
	selector := fields.AndSelectors(fields.OneTermEqualSelector("spec.nodeName", nodeName), fields.OneTermEqualSelector("metadata.name", ref.Name))
	list, err := c.kube.CoreV1().Pods(ref.Namespace).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if string(list.Items[i].UID) == ref.UID {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// patchStatus writes what differs between the two. A node may not patch pods, but its finalizer can be changed
// through the status. The UID in the patch makes it fail for another pod of the same name. The caller has a turn.
func (c cluster) patchStatus(ctx context.Context, old, want *corev1.Pod) (*corev1.Pod, error) {
	patch, err := statusPatch(old, want)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.kube.CoreV1().Pods(old.Namespace).Patch(ctx, old.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// turn waits until few enough statuses are being written, as long as ctx lasts. The caller gives it back.
func (c cluster) turn(ctx context.Context) (giveBack func(), err error) {
	select {
	case c.turns <- struct{}{}:
		return func() { <-c.turns }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func statusPatch(old, want *corev1.Pod) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: old.Finalizers}, Status: old.Status})
	if err != nil {
		return nil, fmt.Errorf("encoding the pod's status: %w", err)
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: old.UID, Finalizers: want.Finalizers}, Status: want.Status})
	if err != nil {
		return nil, fmt.Errorf("encoding the pod's status: %w", err)
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}

// deletePod finishes a deletion: no grace is left to give.
func (c cluster) deletePod(ctx context.Context, pod *corev1.Pod) error {
	return c.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
}

// ownClient makes a client with connections of its own, so that no other request can starve it, and a function that closes them: after a
// network change an old connection may hang for minutes.
func ownClient(config *rest.Config, timeout time.Duration) (kubernetes.Interface, func(), error) {
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: timeout, KeepAlive: timeout}).DialContext)
	config = rest.CopyConfig(config)
	config.Dial = dialer.DialContext
	config.Timeout = timeout
	config.RateLimiter = nil
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	return kube, dialer.CloseAll, nil
}
