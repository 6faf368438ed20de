package jobcontainers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bullpen-ci/bullpen/internal/controller/queues"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Name of the controller, in logs, metrics and Events.
const Name = "jobcontainers"

// Images looks up what an image's name stands for. Errors for the job's log are *image.Error.
type Images interface {
	Resolve(ctx context.Context, query image.Query) (image.Resolved, error)
}

// Options configures the reconciler.
type Options struct {
	// Key opens requests. Required.
	Key *letter.PrivateKey
	// Images is asked for each image of a request. Required.
	Images Images
	// SelfRegistering says that the manager has self-registering runners. Without, the job of one gets no containers.
	SelfRegistering bool
	// Lookup is how long the images of one request may take; the default is 45 s.
	Lookup time.Duration
	// Pods is how many pods are answered at once; the default is 32. None waits for a registry.
	Pods int
	// Registry takes the metrics. Required.
	Registry prometheus.Registerer
	// Log is required.
	Log *slog.Logger
	// Now is the clock; the default is time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() (Options, error) {
	if o.Key == nil || o.Images == nil || o.Registry == nil || o.Log == nil {
		return o, errors.New("jobcontainers: Key, Images, Registry and Log are required")
	}
	if o.Lookup <= 0 {
		o.Lookup = 45 * time.Second
	}
	if o.Pods <= 0 {
		o.Pods = 32
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// Setup adds the controller to the manager, whose cache must hold RunnerPools, with SelfRegistering Runners, nodes with their labels, and pods with
// what Keep keeps of them.
func Setup(mgr manager.Manager, options Options) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	r := &Reconciler{
		options: options, client: mgr.GetClient(), events: mgr.GetEventRecorder(Name),
		secrets: &pullSecrets{client: mgr.GetClient(), owner: "bullpen-" + Name},
		lookups: newLookups(options.Images, options.Lookup),
	}
	if r.metrics, err = newMetrics(options.Registry); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	err = builder.ControllerManagedBy(mgr).Named(Name).
		For(&corev1.Pod{}, builder.WithPredicates(changes())).
		WatchesRawSource(source.Func(r.lookups.source)).
		WithOptions(queues.Options(options.Pods)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller: %w", err)
	}
	if err := mgr.Add(r.lookups); err != nil {
		return fmt.Errorf("adding the lookups of images: %w", err)
	}
	return nil
}

// changes are the events after which a pod may need something: it is new, or its own or its added containers have changed. Every other event
// of a runner's pod costs a comparison.
func changes() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return concerns(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*corev1.Pod)
			after, is := e.ObjectNew.(*corev1.Pod)
			return ok && is && concerns(after) && (before.Status.Phase != after.Status.Phase ||
				!reflect.DeepEqual(before.Status.EphemeralContainerStatuses, after.Status.EphemeralContainerStatuses) ||
				!reflect.DeepEqual(courierOf(before), courierOf(after)))
		},
		DeleteFunc:  func(e event.DeleteEvent) bool { return concerns(e.Object) }, // its lookup ends; its Secret is the garbage collector's
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func concerns(object any) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == runnerpod.ContainerCourier })
}

func courierOf(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == runnerpod.ContainerCourier {
			return s
		}
	}
	return nil
}

// Keep copies what this package reads of cached pods into one that was trimmed for another: of a pod that was made for job containers, the
// name of its courier, and the states of its ephemeral containers.
func Keep(pod, trimmed *corev1.Pod) {
	if !concerns(pod) {
		return
	}
	trimmed.Spec.Containers = []corev1.Container{{Name: runnerpod.ContainerCourier}}
	for i := range pod.Status.EphemeralContainerStatuses {
		s := &pod.Status.EphemeralContainerStatuses[i]
		kept := corev1.ContainerStatus{Name: s.Name}
		if w := s.State.Waiting; w != nil {
			kept.State.Waiting = &corev1.ContainerStateWaiting{Reason: w.Reason}
		}
		if t := s.State.Terminated; t != nil {
			kept.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, Reason: t.Reason}
		}
		trimmed.Status.EphemeralContainerStatuses = append(trimmed.Status.EphemeralContainerStatuses, kept)
	}
}
