package jobcontainers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/ephemeral"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Reconciler answers the requests of runners' pods.
type Reconciler struct {
	options Options
	client  client.Client // pods past the cache; pools, Runners and nodes from it
	secrets *pullSecrets
	lookups *lookups
	events  events.EventRecorder
	metrics *metrics
}

// patience is how long a request may take, from when it left its pod. Its hook waits no longer.
const patience = courier.Wait

// Reconcile reads one pod, and adds what it needs.
func (r *Reconciler) Reconcile(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if err := r.client.Get(ctx, key.NamespacedName, &pod); err != nil {
		if apierrors.IsNotFound(err) {
			r.lookups.forget(key.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("reading pod %s: %w", key.Name, err)
	}
	v, ok := ephemeral.Read(&pod)
	if !ok || pod.Labels[runnerpod.LabelRunner] != "true" {
		return reconcile.Result{}, nil
	}
	if err := r.secrets.begin(ctx, &pod, r.options.Now()); err != nil {
		return reconcile.Result{}, err
	}
	d := decide(&pod, v, r.options.Now())
	err := r.act(ctx, &pod, v, d)
	switch {
	case errors.Is(err, errLooking):
		return reconcile.Result{}, nil
	case errors.Is(err, errFull):
		return reconcile.Result{RequeueAfter: fullDelay}, nil
	case errors.Is(err, errPodFull):
		r.lookups.forget(key.NamespacedName)
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err): // the kubelet has written the status since it was read: decided again
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	r.lookups.forget(key.NamespacedName) // the request is answered, or there is none
	return reconcile.Result{RequeueAfter: d.again}, nil
}

// conflictDelay is short: a job waits.
const conflictDelay = 10 * time.Millisecond

// act carries a decision out. News of containers go first, because what they are about may block what comes after.
func (r *Reconciler) act(ctx context.Context, pod *corev1.Pod, v ephemeral.View, d decision) error {
	if len(d.failures) > 0 {
		if err := r.notify(ctx, pod, v, d); err != nil || d.action == wait {
			return err
		}
		return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, errChanged) // the rest is for the pod as it is now
	}
	switch d.action {
	case answer:
		return r.answer(ctx, pod, v, d)
	case refuse:
		return r.refuse(ctx, pod, v, d.id, d.sentence)
	case revive:
		a, err := repeat(pod, v)
		if err != nil {
			return err
		}
		r.options.Log.Info("adding a courier in place of one that failed", "pod", pod.Name)
		return r.add(ctx, pod, v, a.containers)
	case proceed, closed:
		a, err := carry(pod, v, d.rest, d.sentence)
		if err != nil {
			return err
		}
		r.options.Log.Debug("adding a courier", "pod", pod.Name, "request", d.id, "from", d.rest.From, "closed", d.sentence)
		return r.add(ctx, pod, v, a.containers)
	case wait:
	}
	return nil
}

var errChanged = errors.New("containers were added")

func (r *Reconciler) notify(ctx context.Context, pod *corev1.Pod, v ephemeral.View, d decision) error {
	notice, err := ephemeral.NextNotice(pod, v, d.failures)
	if err != nil {
		return err
	}
	if err = r.add(ctx, pod, v, []corev1.EphemeralContainer{notice}); err != nil && (!errors.Is(err, errPodFull) || v.Newest().Delivery().Closed != "") {
		return err
	}
	for _, f := range d.failures {
		r.metrics.failures.Inc()
		r.event(pod, corev1.EventTypeWarning, reasonFailed, "%s: %s", f.Container, f.Text)
	}
	return err
}

// answer decides on a request and adds what it is granted. Everything that can fail at a registry fails before the pod is changed, so that a
// registry that hangs never reaches the kubelet.
func (r *Reconciler) answer(ctx context.Context, pod *corev1.Pod, v ephemeral.View, d decision) error {
	if before, ok := v.Response(d.id); ok { // JOB-4
		a, err := deliver(pod, v, before)
		if err != nil {
			return err
		}
		r.metrics.requests.WithLabelValues(outcomeRepeated).Inc()
		return r.add(ctx, pod, v, a.containers)
	}
	if r.options.Now().Sub(d.asked) > patience {
		return r.refuse(ctx, pod, v, d.id, fmt.Sprintf("This request for containers was not answered within %s.", patience))
	}
	request, sentence := r.open(d)
	if sentence == "" {
		sentence = check(request, v)
	}
	if sentence == "" {
		sentence = unbounded(pod)
	}
	if sentence != "" {
		return r.refuse(ctx, pod, v, d.id, sentence)
	}
	permitted, sentence, err := r.permitted(ctx, pod)
	if err != nil {
		return err
	}
	if sentence != "" {
		return r.refuse(ctx, pod, v, d.id, sentence)
	}
	images, sentence, err := r.resolve(ctx, pod, request, permitted, d.asked)
	if err != nil {
		return err
	}
	if sentence != "" {
		return r.refuse(ctx, pod, v, d.id, sentence)
	}
	a, err := grant(pod, v, request, images, permitted.profile)
	if err != nil {
		return err
	}
	if a.response.Refusal != "" {
		return r.refuse(ctx, pod, v, d.id, a.response.Refusal)
	}
	err = r.secrets.fill(ctx, pod, request)
	if conflict := (*image.ConflictError)(nil); errors.As(err, &conflict) {
		return r.refuse(ctx, pod, v, d.id, conflict.Error())
	}
	if err != nil {
		return err
	}
	return r.grant(ctx, pod, v, d, a)
}

// grant adds the containers. What the cluster refuses, such as by the Pod Security level of the namespace, becomes the refusal.
func (r *Reconciler) grant(ctx context.Context, pod *corev1.Pod, v ephemeral.View, d decision, a addition) error {
	err := r.add(ctx, pod, v, a.containers)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) {
		message := oneLine(messageOf(err), "")
		r.options.Log.Warn("the cluster does not admit the containers of a job", "pod", pod.Name, "message", message)
		return r.refuse(ctx, pod, v, d.id, "The cluster does not admit the containers of this job: "+message)
	}
	if err != nil {
		return err
	}
	r.metrics.requests.WithLabelValues(outcomeGranted).Inc()
	r.metrics.seconds.Observe(r.options.Now().Sub(d.asked).Seconds())
	r.options.Log.Info("added the containers of a job", a.auditRecord(pod)...)
	for _, c := range a.response.Containers {
		r.metrics.containers.WithLabelValues(string(c.Role)).Inc()
		r.event(pod, corev1.EventTypeNormal, reasonAdded, "Added container %s with image %s", c.Name, c.Image)
	}
	return nil
}

func (r *Reconciler) refuse(ctx context.Context, pod *corev1.Pod, v ephemeral.View, id, sentence string) error {
	a, err := decline(pod, v, id, sentence)
	if err != nil {
		return err
	}
	if err := r.add(ctx, pod, v, a.containers); err != nil {
		return err
	}
	r.metrics.requests.WithLabelValues(outcomeRefused).Inc()
	r.event(pod, corev1.EventTypeWarning, reasonRefused, "%s", sentence)
	return nil
}

// open decrypts a request. Its text is a job's: nothing of it is repeated.
func (r *Reconciler) open(d decision) (jobcontainer.Request, string) {
	request, err := r.options.Key.Open(d.text)
	switch {
	case err != nil:
		r.options.Log.Info("a request for containers cannot be read", "request", d.id, "error", err)
		return request, "This request for containers cannot be read: the runner was made for another installation, or its request was changed. Re-run the job."
	case request.ID != d.id:
		return request, "This request for containers cannot be read: it has two ids."
	}
	return request, ""
}

// resolve returns the images, or why there are none in a sentence for the job's log. errLooking and errFull say that they are not known yet.
func (r *Reconciler) resolve(
	ctx context.Context, pod *corev1.Pod, request jobcontainer.Request, p permission, asked time.Time,
) ([]image.Resolved, string, error) {
	platform, err := r.platform(ctx, pod)
	if err != nil {
		return nil, "", err
	}
	q := question{uid: pod.UID, id: request.ID, tenant: p.tenant}
	for _, c := range request.Containers {
		q.queries = append(q.queries, image.Query{Tenant: p.tenant, Image: c.Image, Platform: platform, Credentials: c.Credentials, Policy: p.images})
	}
	known, err := r.lookups.get(client.ObjectKeyFromObject(pod), q, asked.Add(patience).Sub(r.options.Now()))
	if err != nil {
		return nil, "", err
	}
	for _, failure := range known.failures {
		if refused := (*image.Error)(nil); errors.As(failure, &refused) {
			r.options.Log.Info("an image of a job cannot be used", "pod", pod.Name, "image", refused.Image, "reason", refused.Reason, "detail", refused.Detail)
			return nil, refused.Error(), nil
		}
		if failure != nil && errors.Is(failure, context.DeadlineExceeded) {
			return nil, fmt.Sprintf("The images of this job could not be looked up within %s.", r.options.Lookup), nil
		}
	}
	if err := errors.Join(known.failures...); err != nil {
		r.lookups.forget(client.ObjectKeyFromObject(pod)) // it is looked up again
		return nil, "", err
	}
	return known.found, "", nil
}

// platform is that of the pod's node.
func (r *Reconciler) platform(ctx context.Context, pod *corev1.Pod) (image.Platform, error) {
	var node corev1.Node
	if err := r.client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node); err != nil {
		return image.Platform{}, fmt.Errorf("reading node %s: %w", pod.Spec.NodeName, err)
	}
	return image.Platform{OS: "linux", Architecture: node.Labels[corev1.LabelArchStable]}, nil
}

// errPodFull: what was to be added does not fit. Nothing is added any more.
var errPodFull = errors.New("the pod can describe no other container")

// add adds containers, or, if they do not fit (JOB-5), a courier that closes the volume.
func (r *Reconciler) add(ctx context.Context, pod *corev1.Pod, v ephemeral.View, containers []corev1.EphemeralContainer) error {
	if fits(v, containers, maxSpec) {
		return r.patch(ctx, pod, containers)
	}
	if v.Newest().Delivery().Closed != "" {
		return errPodFull
	}
	a, err := carry(pod, v, ephemeral.Rest{}, fullText)
	if err != nil {
		return err
	}
	if !fits(v, a.containers, lastSpec) {
		return errPodFull
	}
	r.options.Log.Warn("a job's pod can describe no other container: its requests are closed", "pod", pod.Name, "bytes", v.Size)
	if err := r.patch(ctx, pod, a.containers); err != nil {
		return err
	}
	return errPodFull
}

// patch is the one change of a pod. It holds only for the pod as it was read: for its uid, and for the containers that it had (JOB-4).
func (r *Reconciler) patch(ctx context.Context, pod *corev1.Pod, containers []corev1.EphemeralContainer) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"spec":     map[string]any{"ephemeralContainers": containers},
	})
	if err != nil {
		return fmt.Errorf("adding containers to pod %s: %w", pod.Name, err)
	}
	target := &corev1.Pod{ObjectMeta: pod.ObjectMeta}
	err = r.client.SubResource("ephemeralcontainers").Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, body))
	if err != nil {
		return fmt.Errorf("adding containers to pod %s: %w", pod.Name, err)
	}
	return nil
}

func messageOf(err error) string {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return status.ErrStatus.Message
	}
	return "it gave no reason"
}
