package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// hostInformer watches MacHosts, and keeps what administrators see of them: neither how to connect to a Mac nor its
// desired state.
func hostInformer(config *rest.Config, namespace string) (cache.SharedIndexInformer, error) {
	client, params, err := kindsClient(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for MacHosts: %w", err)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.MacHostList{}
			err := client.Get().Namespace(namespace).Resource("machosts").VersionedParams(&options, params).Do(ctx).Into(list)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return client.Get().Namespace(namespace).Resource("machosts").VersionedParams(&options, params).Watch(ctx)
		},
	}
	informer := cache.NewSharedIndexInformer(lw, &v1alpha1.MacHost{}, 0, cache.Indexers{})
	_ = informer.SetTransform(trimHost) // fails only once the informer runs
	return informer, nil
}

func trimHost(obj any) (any, error) {
	host, ok := obj.(*v1alpha1.MacHost)
	if !ok {
		return obj, nil
	}
	slim := &v1alpha1.MacHost{ObjectMeta: trimMeta(host.ObjectMeta), Status: host.Status}
	slim.Spec.Pool, slim.Spec.NodeName = host.Spec.Pool, host.Spec.NodeName
	slim.Status.HostKey = ""
	return slim, nil
}

// Hosts are all Macs; watched is false where they are not watched, or were not seen yet.
func (v *View) Hosts() (hosts []adminapi.Host, watched bool) {
	if v.hosts == nil || !v.hosts.HasSynced() {
		return nil, false
	}
	for _, obj := range v.hosts.GetStore().List() {
		if host, ok := obj.(*v1alpha1.MacHost); ok {
			hosts = append(hosts, describeHost(host))
		}
	}
	return hosts, true
}

func describeHost(host *v1alpha1.MacHost) adminapi.Host {
	s := host.Status
	out := adminapi.Host{
		Namespace: host.Namespace, Name: host.Name, Node: s.NodeName, Pool: host.Spec.Pool, AppliedAt: moment(s.AppliedTime),
		Attempts: int64(s.Attempts), Unreachable: int64(s.Unreachable), NextAttempt: moment(s.NextAttempt), LastError: s.LastError,
		NodeMissing: moment(s.NodeMissingSince), Problems: []adminapi.Problem{}, Deleting: host.DeletionTimestamp != nil,
	}
	if ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); ready != nil {
		out.Ready, out.State, out.Message = ready.Status == metav1.ConditionTrue, ready.Reason, ready.Message
	}
	for _, c := range s.Conditions {
		// A Mac is drained for a while to be changed; otherwise it should not be.
		if c.Status != metav1.ConditionFalse || c.Type == v1alpha1.ConditionReady || c.Type == v1alpha1.ConditionDrained {
			continue
		}
		out.Problems = append(out.Problems, adminapi.Problem{Condition: strings.TrimPrefix(c.Type, v1alpha1.ConditionStepPrefix), Sentence: c.Message})
	}
	return out
}

func moment(at *metav1.Time) *time.Time {
	if at == nil || at.IsZero() {
		return nil
	}
	utc := at.UTC()
	return &utc
}
