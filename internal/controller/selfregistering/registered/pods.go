package registered

import (
	"context"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/queues"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

const indexNode = "spec.nodeName"

// lookEvery is the minimum interval at which GitHub's list is read for a runner that should be in it.
const lookEvery = 5 * time.Second

// conflictRetry is the delay after which a pod is read again that had changed since it was read.
const conflictRetry = 200 * time.Millisecond

// watch adds the controller of pods.
func (s *Service) watch(mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, indexNode, func(object client.Object) []string {
		if pod, is := object.(*corev1.Pod); is && pod.Spec.NodeName != "" && ours(pod) {
			return []string{pod.Spec.NodeName}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("indexing pods by node: %w", err)
	}
	err := builder.ControllerManagedBy(mgr).Named(Name).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return ours(o) }))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(s.podsOn)).
		WithOptions(queues.Options(s.options.Pods)).
		Complete(reconcile.Func(s.Reconcile))
	if err != nil {
		return fmt.Errorf("building the controller of self-registering runners' pods: %w", err)
	}
	return nil
}

func ours(object client.Object) bool {
	return object.GetLabels()[runnerpod.LabelSelfRegistering] == "true"
}

func (s *Service) podsOn(ctx context.Context, node client.Object) []reconcile.Request {
	var pods corev1.PodList
	if err := s.pods.List(ctx, &pods, client.MatchingFields{indexNode: node.GetName()}); err != nil {
		s.options.Log.Warn("cannot list the pods of a changed node", "node", node.GetName(), "error", err)
		return nil
	}
	requests := make([]reconcile.Request, 0, len(pods.Items))
	for i := range pods.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
	}
	return requests
}

// Reconcile handles one pod: whether its node exists, whether GitHub knows its runner, whether its registration is gone when the pod is,
// and whether the pod has an owner.
func (s *Service) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	v, exists, err := s.View(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !exists {
		s.nodes.moved(request.NamespacedName, Place{})
		return reconcile.Result{}, nil
	}
	var next time.Time
	place, err := s.nodes.look(ctx, s.client, s.reader, v.Node, s.now())
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.nodes.moved(v.Key(), place) {
		s.changed(v.Key())
	}
	if !place.Absent.IsZero() {
		next = s.now().Add(checkNodeEvery)
	}
	owned, going, err := s.ownerExists(ctx, &v)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !owned || going && !v.Deleting.IsZero() { // who waits for its pods to go, as the garbage collector does, makes none again
		v.Owner = Owner{}
	}
	for _, phase := range []func(context.Context, *View, Place) (time.Time, error){s.sight, s.miss, s.disown, s.unregister, s.hasten, s.leave} {
		due, err := phase(ctx, &v, place)
		if apierrors.IsConflict(err) { // it has changed since it was read, which is no failure
			return reconcile.Result{RequeueAfter: conflictRetry}, nil
		}
		if err != nil {
			return reconcile.Result{}, err
		}
		next = earliest(next, due)
	}
	if next.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(next.Sub(s.now()), time.Millisecond)}, nil
}

// sight looks a runner up that is up and that GitHub was not seen to know yet, and writes down that it does.
func (s *Service) sight(ctx context.Context, v *View, _ Place) (time.Time, error) {
	// One that works already is looked up, too: until it is known its token can be used, by its job as well (NET-3).
	if !v.Running || !v.Registered.IsZero() || v.RunnerName == "" {
		return time.Time{}, nil
	}
	seen := s.options.Roster.Look(v.Credentials, v.Target, v.RunnerName)
	if !seen.Known || v.Ephemeral && !seen.Registration.Online { // an ephemeral one is in the list before it is up
		now := s.now()
		// The list counts that was read after the runner should have been in it (POOL-8).
		if due := v.Overdue(0); v.Unseen.IsZero() && seen.Problem == nil && !due.IsZero() && seen.AsOf.After(due) {
			return now.Add(lookEvery), s.annotate(ctx, v, map[string]string{runnerpod.AnnotationUnseen: now.UTC().Format(time.RFC3339)})
		}
		if seen.Next.Before(now.Add(lookEvery)) {
			return now.Add(lookEvery), nil
		}
		return seen.Next, nil
	}
	return time.Time{}, s.annotate(ctx, v, map[string]string{
		runnerpod.AnnotationRegistered: s.now().UTC().Format(time.RFC3339),
		runnerpod.AnnotationRunnerID:   strconv.FormatInt(seen.Registration.ID, 10),
	})
}

// disown removes a pod whose owner is gone, as the owner would: once GitHub has removed its registration, or it has ended. No other client
// would: the garbage collector may not.
func (s *Service) disown(ctx context.Context, v *View, _ Place) (time.Time, error) {
	if !v.Deleting.IsZero() || v.Owner != (Owner{}) {
		return time.Time{}, nil
	}
	answer, err := s.RemovePod(ctx, v)
	if err != nil || answer.Verdict == lifecycle.Granted {
		return time.Time{}, err
	}
	return earliest(answer.NotBefore, s.now().Add(pace.Busy)), nil
}

// ownerExists reports whether what stands behind a pod is there, and whether it is being deleted. Its no is authoritative.
func (s *Service) ownerExists(ctx context.Context, v *View) (exists, going bool, err error) {
	if v.Owner == (Owner{}) {
		return false, false, nil
	}
	key := types.NamespacedName{Namespace: v.Namespace, Name: v.Owner.Name}
	var cached client.Object
	kind := v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunner)
	switch v.Owner.Kind {
	case v1alpha1.KindRunner:
		cached = &v1alpha1.Runner{}
	case kindStatefulSet:
		cached, kind = &appsv1.StatefulSet{}, appsv1.SchemeGroupVersion.WithKind(kindStatefulSet)
	default:
		return true, false, nil // an owner of a kind that is not ours
	}
	if err := s.client.Get(ctx, key, cached); err == nil && string(cached.GetUID()) == v.Owner.UID {
		return true, cached.GetDeletionTimestamp() != nil, nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	err = s.reader.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("looking for the owner of pod %s: %w", v.Name, err)
	}
	return string(object.UID) == v.Owner.UID, object.DeletionTimestamp != nil, nil
}

const kindStatefulSet = "StatefulSet"

// unregister has GitHub remove the registration of a runner that is being stopped, for any reason, and shows no job (EXCL-8). The pod gets
// no signal: without a registration the runner exits. GitHub refuses to remove the registration of a runner that has received a job.
// Nothing on a pod shows that its node is being shut down, so the node is checked.
func (s *Service) unregister(ctx context.Context, v *View, place Place) (time.Time, error) {
	stopped := (!v.Deleting.IsZero() || place.Departure.ShutDown()) && v.Started && !v.Ended && !place.Lost(s.now())
	if !stopped || !v.Unregistered.IsZero() || v.Signs.Work() != "" {
		return time.Time{}, nil
	}
	answer := s.Ask(ctx, []lifecycle.RunnerRef{v.Ref()})[0]
	if answer.Verdict == lifecycle.Granted {
		return time.Time{}, nil
	}
	return earliest(answer.NotBefore, s.now().Add(pace.Busy)), nil
}

// leave takes our finalizer off a pod that is going, once GitHub has removed its registration.
func (s *Service) leave(ctx context.Context, v *View, place Place) (time.Time, error) {
	if !v.Protected {
		return time.Time{}, nil
	}
	switch verdict := leaving(v, place, s.now()); verdict {
	case stays:
		return place.Next(s.now()), nil
	case unregistered:
	case isForced:
		answer, err := s.RemovePod(ctx, v)
		if err != nil {
			return time.Time{}, err
		}
		if answer.Verdict != lifecycle.Granted {
			return earliest(answer.NotBefore, s.now().Add(pace.Busy)), nil
		}
	case isAsked:
		answer := s.Ask(ctx, []lifecycle.RunnerRef{v.Ref()})[0]
		if answer.Verdict == lifecycle.Granted {
			break
		}
		due, mayBe := s.abandonAt(v)
		if !mayBe || s.now().Before(due) {
			return earliest(earliest(answer.NotBefore, s.now().Add(pace.Busy)), due), nil
		}
		s.abandon(v, answer)
	}
	if v.KubernetesMode {
		if err := s.removeHelpers(ctx, v); err != nil {
			s.options.Log.Warn("cannot remove objects left by a runner's jobs yet, retrying", "pod", v.Name, "error", err)
			return s.now().Add(helpersAgain), nil
		}
	}
	return time.Time{}, s.release(ctx, v)
}

// hasten cuts the grace period short of a pod that is being deleted and whose runner has ended: it is for a job, and what else is in the pod
// may use all of it (POD-3).
func (s *Service) hasten(ctx context.Context, v *View, _ Place) (time.Time, error) {
	if !v.Attended || v.Deleting.IsZero() || !v.Deadline.After(v.Deleting.Add(besideGrace*time.Second)) {
		return time.Time{}, nil
	}
	_, err := s.RemovePod(ctx, v)
	return time.Time{}, err
}

const (
	// abandonAfter is how long the registration of a runner that has ended, or never starts, may keep its pod, while GitHub does not answer
	// the request to remove it. No job can run on it, and GitHub itself removes runners that stay offline.
	abandonAfter = 10 * time.Minute
	// helpersAgain is when the pods of jobs are looked for again.
	helpersAgain = 30 * time.Second
)

// abandonAt is when a registration is abandoned that GitHub does not remove; false while a job might run on it. The time counts from the
// first request without an answer, and not from the pod's end: after an outage of the controller, or when too many requests are queued,
// GitHub may not have been asked yet.
func (s *Service) abandonAt(v *View) (time.Time, bool) {
	if !v.Ended && v.Node != "" { // one that is deleted before it has a node never gets one
		return time.Time{}, false
	}
	since := s.memory.unansweredSince(v.UID)
	switch {
	case v.RunnerName == "": // there is no name to ask for
		since = v.since()
	case since.IsZero():
		since = s.now()
	case v.since().After(since) && v.since().Before(s.now()): // it was asked about while it was alive
		since = v.since()
	}
	return since.Add(abandonAfter), true
}

// since is when the pod began to go.
func (v *View) since() time.Time {
	if v.Ended && v.End.At.After(v.Deleting) {
		return v.End.At
	}
	if v.Deleting.IsZero() {
		return v.End.At
	}
	return v.Deleting
}

// departure is what our finalizer on a pod waits for.
type departure int

const (
	stays        departure = iota // the pod is not being deleted, or its runner may still be busy
	unregistered                  // nothing of it is left at GitHub
	isAsked                       // GitHub must be asked
	isForced                      // its node is gone, and no kubelet will report its end
)

// leaving says what our finalizer waits for. It is pure.
func leaving(v *View, place Place, now time.Time) departure {
	switch {
	case v.Owner.Kind == kindStatefulSet:
		return stays // it would make the pod again, under a registration that was used
	case v.Deleting.IsZero() && !v.Ended:
		return stays
	case !v.Ended && place.Lost(now):
		return isForced // POOL-7: on proof only
	case !v.Unregistered.IsZero():
		return unregistered
	case v.Ended && v.Ephemeral && v.End.Succeeded() && !v.End.Forced && !endedByUs(v):
		return unregistered // its one job is done, and GitHub has removed its registration
	case v.Ended, !v.Started:
		return isAsked
	default:
		return stays // it ends when its registration is removed, or its job is done
	}
}

// endedByUs reports whether the runner may have exited because it was asked to stop, and not because its job was done.
func endedByUs(v *View) bool {
	return !v.Deleting.IsZero() && (v.End.At.IsZero() || !v.End.At.Before(v.Deleting.Truncate(time.Second)))
}

// abandon tells that a registration is left behind.
func (s *Service) abandon(v *View, answer lifecycle.Answer) {
	s.metrics.abandoned.Inc()
	s.event(v, corev1.EventTypeWarning, "RegistrationLeft", "Unregister",
		"The runner exited, and its registration %s could not be removed at GitHub. Remove it there if it is still listed. %s", v.RunnerName, podsigns.OneLine(answer.Detail, 300))
}

func (s *Service) event(v *View, kind, reason, action, note string, args ...any) {
	about := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name, UID: types.UID(v.UID)},
	}
	s.events.Eventf(about, nil, kind, reason, action, note, args...)
}

// release takes our finalizer off, and no other.
func (s *Service) release(ctx context.Context, v *View) error {
	var pod corev1.Pod
	if err := s.client.Get(ctx, v.Key(), &pod); err != nil { // past the cache, which is trimmed
		return client.IgnoreNotFound(fmt.Errorf("reading pod %s: %w", v.Name, err))
	}
	if string(pod.UID) != v.UID || !controllerutil.ContainsFinalizer(&pod, runnerpod.FinalizerRegistration) {
		return nil
	}
	base := pod.DeepCopy()
	controllerutil.RemoveFinalizer(&pod, runnerpod.FinalizerRegistration)
	err := s.client.Patch(ctx, &pod, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("letting pod %s go: %w", v.Name, err)
	}
	s.memory.forget(v.UID)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.projected, v.UID)
	delete(s.prepared, types.UID(v.Owner.UID))
	return nil
}

// removeHelpers deletes the pods and Secrets that GitHub's container hooks made for the jobs of a runner that has ended. They
// are no runners.
func (s *Service) removeHelpers(ctx context.Context, v *View) error {
	selector := client.MatchingLabels{runnerpod.LabelHookPod: v.Name}
	var pods corev1.PodList
	if err := s.reader.List(ctx, &pods, client.InNamespace(v.Namespace), selector); err != nil {
		return fmt.Errorf("listing the pods of %s's jobs: %w", v.Name, err)
	}
	var secrets metav1.PartialObjectMetadataList
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := s.reader.List(ctx, &secrets, client.InNamespace(v.Namespace), selector); err != nil {
		return fmt.Errorf("listing the Secrets of %s's jobs: %w", v.Name, err)
	}
	var helpers []client.Object
	for i := range pods.Items {
		if pods.Items[i].Labels[runnerpod.LabelRunner] == "" { // EXCL-2: a runner is not removed here, whatever its labels
			helpers = append(helpers, &pods.Items[i])
		}
	}
	for i := range secrets.Items {
		helpers = append(helpers, &secrets.Items[i])
	}
	for _, helper := range helpers {
		err := s.client.Delete(ctx, helper, client.Preconditions{UID: ptr.To(helper.GetUID())})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s of %s's jobs: %w", helper.GetName(), v.Name, err)
		}
	}
	return nil
}
