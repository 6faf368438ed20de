package podconformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// history is each version of each pod of the namespace, as one watch shows them: states that last for milliseconds included.
type history struct {
	mu   sync.Mutex
	pods map[types.UID]*versions
}

// versions are those of one pod.
type versions struct {
	all     []*corev1.Pod
	gone    bool          // the last of all is the object as it was deleted
	changed chan struct{} // closed at the next change
}

// record records until the test ends.
func record(t *testing.T, kube kubernetes.Interface, namespace string) (*history, error) {
	t.Helper()
	h := &history{pods: map[types.UID]*versions{}}
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(namespace))
	handled, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { h.note(obj, false) },
		UpdateFunc: func(_, obj any) { h.note(obj, false) },
		DeleteFunc: func(obj any) { h.note(obj, true) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching the pods of %s: %w", namespace, err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(t.Context().Done(), handled.HasSynced) {
		return nil, fmt.Errorf("watching the pods of %s: %w", namespace, errors.New("the cache never synced"))
	}
	return h, nil
}

func (h *history) note(obj any, gone bool) {
	if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tomb.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.of(pod.UID)
	v.all, v.gone = append(v.all, pod), v.gone || gone
	close(v.changed)
	v.changed = make(chan struct{})
}

// of is called with the lock held.
func (h *history) of(uid types.UID) *versions {
	if h.pods[uid] == nil {
		h.pods[uid] = &versions{changed: make(chan struct{})}
	}
	return h.pods[uid]
}

// since returns the versions from the n-th on.
func (h *history) since(uid types.UID, n int) (all []*corev1.Pod, gone bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.of(uid)
	return v.all[min(n, len(v.all)):], v.gone, v.changed
}

func describe(pod *corev1.Pod) string {
	if pod == nil {
		return "never seen"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pod %s: phase %s %s %s\n", pod.Name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	for _, c := range append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...) {
		fmt.Fprintf(&b, "  %s ready=%t restarts=%d", c.Name, c.Ready, c.RestartCount)
		switch {
		case c.State.Waiting != nil:
			fmt.Fprintf(&b, " waiting: %s %s\n", c.State.Waiting.Reason, c.State.Waiting.Message)
		case c.State.Terminated != nil:
			fmt.Fprintf(&b, " terminated: %d %s %s\n", c.State.Terminated.ExitCode, c.State.Terminated.Reason, c.State.Terminated.Message)
		default:
			b.WriteString(" running\n")
		}
	}
	for _, c := range pod.Status.Conditions {
		fmt.Fprintf(&b, "  %s=%s %s %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}
