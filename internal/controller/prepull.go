package controller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/bullpen-ci/bullpen/internal/controller/pool"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// prepullLabel selects the DaemonSets that pull images, and their pods.
func prepullLabel() labels.Requirement {
	exists, err := labels.NewRequirement(runnerpod.LabelPrepull, selection.Exists, nil)
	utilruntime.Must(err)
	return *exists
}

// newPrepullCache adds a cache of pre-pull pods to the manager. The manager's own holds runners: a cache has one selector for a kind, and the
// pods have no label in common.
func newPrepullCache(mgr manager.Manager, namespace string) (cache.Cache, error) {
	pods, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.NewSelector().Add(prepullLabel()), Transform: pool.TrimPrepullPod, UnsafeDisableDeepCopy: ptr.To(true)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache of pre-pull pods: %w", err)
	}
	if err := mgr.Add(pods); err != nil {
		return nil, fmt.Errorf("adding the cache of pre-pull pods: %w", err)
	}
	return pods, nil
}
