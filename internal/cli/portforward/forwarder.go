package portforward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ErrClosed is the error of a Forwarder after Close.
var ErrClosed = errors.New("the port-forward is closed")

// Forwarder forwards a local port to the server of a release, from its first use until Close. It is safe for concurrent use.
type Forwarder struct {
	config    *rest.Config
	kube      kubernetes.Interface
	namespace string
	connect   connector

	mu      sync.Mutex
	service *Service // once it is found
	local   uint16   // the port, which stays the same when another pod is used
	running *tunnel
	closed  bool
}

// connector starts a tunnel to a pod's port. A local port of 0 is any free one.
type connector func(ctx context.Context, pod corev1.Pod, local uint16, remote int32) (*tunnel, error)

// New uses the cluster and the rights of config. An empty namespace is that of the only release in the cluster.
func New(config *rest.Config, namespace string) (*Forwarder, error) {
	client := rest.CopyConfig(config)
	client.ContentType, client.AcceptContentTypes = "application/json", "application/json"
	kube, err := kubernetes.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	f := &Forwarder{config: client, kube: kube, namespace: namespace}
	f.connect = f.dial
	return f, nil
}

// Service finds the release's Service for administrators, once.
func (f *Forwarder) Service(ctx context.Context) (Service, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(ctx)
}

func (f *Forwarder) find(ctx context.Context) (Service, error) {
	if f.service != nil {
		return *f.service, nil
	}
	namespace := f.namespace
	list, err := f.kube.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if namespace == "" && apierrors.IsForbidden(err) { // most users may not list those of all namespaces
		namespace = DefaultNamespace
		list, err = f.kube.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	}
	if err != nil {
		return Service{}, problem("finding the server's Service", cmp.Or(namespace, DefaultNamespace), err)
	}
	switch found := servicesOf(list.Items); len(found) {
	case 0:
		return Service{}, &NoReleaseError{Cluster: f.config.Host, Namespace: namespace}
	case 1:
		f.service = &found[0]
		return found[0], nil
	default:
		return Service{}, &SeveralReleasesError{Services: found}
	}
}

// Address is the local address that leads to the server. A port-forward that has ended, such as that to a replaced pod, is started again.
func (f *Forwarder) Address(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return "", ErrClosed
	}
	if f.running != nil && f.running.up() {
		return f.running.address(), nil
	}
	service, err := f.find(ctx)
	if err != nil {
		return "", err
	}
	pods, err := f.kube.CoreV1().Pods(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.selector).String()})
	if err != nil {
		return "", problem("finding a pod of the Service "+service.String(), service.Namespace, err)
	}
	pod, found := readyPod(pods.Items)
	if !found {
		return "", &NoReadyPodError{Service: service, Pods: len(pods.Items)}
	}
	remote, found := portOf(pod, service.target)
	if !found {
		return "", fmt.Errorf("pod %s/%s has no port %s. Compare the release's version with this program's: `bullpen version --client`", pod.Namespace, pod.Name, service.target.String())
	}
	started, err := f.connect(ctx, pod, f.local, remote)
	if err != nil {
		f.local = 0 // another program may have the port by now
		return "", problem("forwarding a port to pod "+pod.Namespace+"/"+pod.Name, pod.Namespace, err)
	}
	f.running, f.local = started, started.local
	return started.address(), nil
}

// Keep keeps the port forwarded until ctx ends, for clients other than this program. It waits for again before it starts a port-forward that was
// lost, or that failed; report gets the error.
func (f *Forwarder) Keep(ctx context.Context, again func() <-chan time.Time, report func(error)) {
	for ctx.Err() == nil {
		if _, err := f.Address(ctx); err == nil {
			select {
			case <-f.lost():
			case <-ctx.Done():
			}
		} else if ctx.Err() == nil {
			report(err)
		}
		select {
		case <-again():
		case <-ctx.Done():
		}
	}
}

// lost is closed when the present port-forward ends.
func (f *Forwarder) lost() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == nil { // closed by now
		gone := make(chan struct{})
		close(gone)
		return gone
	}
	return f.running.done
}

// Close ends the port-forward, and waits for that.
func (f *Forwarder) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.running != nil {
		f.running.close()
		f.running = nil
	}
}
