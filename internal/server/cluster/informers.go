package cluster

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/poolspec"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

func selector(options metav1.ListOptions) metav1.ListOptions {
	options.LabelSelector = runnerpod.LabelRunner + "=true"
	return options
}

func podInformer(client kubernetes.Interface, namespace string) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Pods(namespace).List(ctx, selector(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods(namespace).Watch(ctx, selector(options))
		},
	}
	informer := cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{
		byUID: func(obj any) ([]string, error) {
			if pod, ok := obj.(*corev1.Pod); ok {
				return []string{string(pod.UID)}, nil
			}
			return nil, nil
		},
	})
	_ = informer.SetTransform(trimPod) // fails only once the informer runs
	return informer
}

func accountInformer(client kubernetes.Interface, namespace string) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().ServiceAccounts(namespace).List(ctx, selector(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().ServiceAccounts(namespace).Watch(ctx, selector(options))
		},
	}
	informer := cache.NewSharedIndexInformer(lw, &corev1.ServiceAccount{}, 0, cache.Indexers{})
	_ = informer.SetTransform(trimAccount)
	return informer
}

// kindsClient is a client of our own kinds.
func kindsClient(config *rest.Config) (*rest.RESTClient, runtime.ParameterCodec, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, fmt.Errorf("registering the kinds of %s: %w", v1alpha1.GroupVersion.Group, err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &v1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	return client, runtime.NewParameterCodec(scheme), err
}

func poolInformer(config *rest.Config, namespace string) (cache.SharedIndexInformer, error) {
	client, params, err := kindsClient(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for RunnerPools: %w", err)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.RunnerPoolList{}
			err := client.Get().Namespace(namespace).Resource("runnerpools").VersionedParams(&options, params).Do(ctx).Into(list)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return client.Get().Namespace(namespace).Resource("runnerpools").VersionedParams(&options, params).Watch(ctx)
		},
	}
	return cache.NewSharedIndexInformer(lw, &v1alpha1.RunnerPool{}, 0, cache.Indexers{}), nil
}

// trimPod keeps what toPod and toRunnerPod read: a fleet's pods are this server's largest cache.
func trimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Pod{ObjectMeta: trimMeta(pod.ObjectMeta)}
	// The fields for administrators, beside those that dispatch uses.
	slim.CreationTimestamp, slim.Spec.NodeName, slim.Status.Phase = pod.CreationTimestamp, pod.Spec.NodeName, pod.Status.Phase
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			slim.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if end := status.State.Terminated; end != nil && (status.Name == runnerpod.ContainerPoller || status.Name == runnerpod.ContainerRunner) {
			slim.Status.ContainerStatuses = append(slim.Status.ContainerStatuses, corev1.ContainerStatus{
				Name:  status.Name,
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: end.ExitCode}},
			})
		}
	}
	return slim, nil
}

func trimAccount(obj any) (any, error) {
	account, ok := obj.(*corev1.ServiceAccount)
	if !ok {
		return obj, nil
	}
	return &corev1.ServiceAccount{ObjectMeta: trimMeta(account.ObjectMeta)}, nil
}

func trimMeta(meta metav1.ObjectMeta) metav1.ObjectMeta {
	slim := metav1.ObjectMeta{
		Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		DeletionTimestamp: meta.DeletionTimestamp, Labels: map[string]string{},
	}
	for _, key := range []string{runnerpod.LabelPool, runnerpod.LabelOwner} {
		if value, ok := meta.Labels[key]; ok {
			slim.Labels[key] = value
		}
	}
	if id, ok := meta.Annotations[runnerpod.AnnotationOwnerID]; ok {
		slim.Annotations = map[string]string{runnerpod.AnnotationOwnerID: id}
	}
	return slim
}

func toPod(pod *corev1.Pod) dispatch.Pod {
	return dispatch.Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
		Pool:        dispatch.PoolRef{Namespace: pod.Namespace, Name: pod.Labels[runnerpod.LabelPool]},
		Deleting:    pod.DeletionTimestamp != nil,
		OwnerLabel:  pod.Labels[runnerpod.LabelOwner],
		OwnerID:     ownerID(pod),
		PollerEnded: pollerEnded(pod),
	}
}

// ownerID is 0 where nothing that could be an id is written.
func ownerID(pod *corev1.Pod) int64 {
	id, err := strconv.ParseInt(pod.Annotations[runnerpod.AnnotationOwnerID], 10, 64)
	if err != nil || id < 0 {
		return 0
	}
	return id
}

// pollerEnded: the poller exited 0, which it does only once its answer is staged. Any other end says that nothing
// was handed over: the claim stays unacknowledged, and recovery may take it back.
func pollerEnded(pod *corev1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if end := status.State.Terminated; status.Name == runnerpod.ContainerPoller && end != nil {
			return end.ExitCode == 0
		}
	}
	return false
}

func toPool(obj any) (dispatch.Pool, bool) {
	pool, ok := obj.(*v1alpha1.RunnerPool)
	if !ok {
		return dispatch.Pool{}, false
	}
	return poolspec.Dispatch(pool), true
}
