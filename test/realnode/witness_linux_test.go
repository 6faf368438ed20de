package realnode

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// witness notes when each runner pod was first seen to be deleted. It trusts only the API server.
type witness struct {
	mu       sync.Mutex
	removals map[string]onebox.Removal
}

func watch(t testing.TB, kube kubernetes.Interface) *witness {
	w := &witness{removals: map[string]onebox.Removal{}}
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(runnersNamespace))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, object any) { w.see(object, false) },
		DeleteFunc: func(object any) { w.see(object, true) },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	factory.StartWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced))
	return w
}

func (w *witness) see(object any, gone bool) {
	if tombstone, missed := object.(cache.DeletedFinalStateUnknown); missed {
		object = tombstone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok || !gone && pod.DeletionTimestamp == nil || pod.Labels[runnerpod.LabelRunner] != "true" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.removals[string(pod.UID)]; !known {
		finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		w.removals[string(pod.UID)] = onebox.Removal{Pod: pod.Name, UID: string(pod.UID), Seen: time.Now(), Finished: finished}
	}
}

func (w *witness) seen() []onebox.Removal {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]onebox.Removal, 0, len(w.removals))
	for _, removal := range w.removals {
		all = append(all, removal)
	}
	return all
}
