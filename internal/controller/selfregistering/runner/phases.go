package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Pace of tries.
const (
	// blockedAgain is when a removal is retried that GitHub, or the runner's own signs, refuse.
	blockedAgain = time.Minute
	// faultFirst and faultSlowest are the delays for faults that an administrator must fix: a Secret, a permission, a group. A change of
	// the Secret, or of the spec, ends the delay.
	faultFirst, faultSlowest = 5 * time.Minute, time.Hour
	// retryFirst and retrySlowest are for what passes by itself.
	retryFirst, retrySlowest = 2 * time.Second, 3 * time.Minute
	// leftAfter is how long a Runner without a pod waits for an answer of GitHub. Nothing can run in it, and GitHub itself removes runners
	// that stay offline: deleted credentials must not keep it for ever.
	leftAfter = 10 * time.Minute
)

// observe reads the Runner's pod, as the cache has it. A pod that should be there and is not is looked for past the cache.
func (r *Reconciler) observe(ctx context.Context, p *pass) (bool, error) {
	v, exists, err := r.service.View(ctx, p.key())
	if err == nil && !exists && p.runner.Status.PodUID != "" {
		v, exists, err = r.service.Fresh(ctx, p.key())
	}
	if err != nil {
		return false, err
	}
	p.spent = p.runner.Status.PodUID != ""
	if exists && v.Owner.UID == string(p.runner.UID) {
		p.pod, p.spent, p.place = &v, true, r.service.Place(v.Node)
		p.lookAt(p.place.Next(r.options.Now()))
	}
	p.who = identity(p.runner)
	return true, nil
}

func identity(runner *v1alpha1.Runner) registered.Identity {
	i := registered.Identity{
		Namespace: runner.Namespace, Name: runner.Name, Spec: &runner.Spec, RunnerName: runner.Annotations[runnerpod.AnnotationRunnerName],
		Owner:        *metav1.NewControllerRef(runner, v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunner)),
		TemplateHash: runner.Labels[runnerpod.LabelTemplateHash],
		Labels:       map[string]string{},
	}
	for _, key := range []string{runnerpod.LabelDeployment, runnerpod.LabelReplicaSet} {
		if value := runner.Labels[key]; value != "" {
			i.Labels[key] = value
		}
	}
	return i
}

// leave releases a deleted Runner: first the pod, once GitHub has removed its registration, however long that takes (RUN-2); then the
// registration, if the runner never had a pod or its pod has vanished; then the Runner.
func (r *Reconciler) leave(ctx context.Context, p *pass) (bool, error) {
	if p.runner.DeletionTimestamp.IsZero() {
		return true, nil
	}
	if !controllerutil.ContainsFinalizer(p.runner, runnerpod.FinalizerRegistration) {
		p.over = true
		return false, nil
	}
	if p.pod != nil {
		return false, r.removePod(ctx, p)
	}
	r.attempted(p, nil)
	if there, exists, err := r.service.Fresh(ctx, p.key()); err != nil {
		return false, err
	} else if exists && there.Owner.UID == string(p.runner.UID) && p.runner.Status.PodUID == "" { // RECV-5: another's keeps nothing
		p.lookAt(r.options.Now().Add(retryFirst)) // it was made a moment ago, and the cache will show whose it is
		return false, nil
	}
	now := r.options.Now()
	answer := r.service.Unregister(ctx, p.who, p.runner.Status.RunnerID, p.spent, wasSettled(&p.runner.Status))
	asked := r.service.UnansweredSince(p.runner.UID) // and not since the deletion: GitHub may not have been asked for long
	left := answer.Verdict == lifecycle.Unknown && !asked.IsZero() && !now.Before(asked.Add(leftAfter))
	if answer.Verdict != lifecycle.Granted && !left {
		blocked(p, answer)
		p.lookAt(again(answer, now))
		return false, nil
	}
	if left {
		r.warn(p, "RegistrationLeft", "It has no pod, and its registration could not be removed at GitHub: "+p.who.RunnerName+". Remove it there if it is still listed. "+answer.Detail)
	}
	base := p.runner.DeepCopy()
	controllerutil.RemoveFinalizer(p.runner, runnerpod.FinalizerRegistration)
	err := r.client.Patch(ctx, p.runner, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("letting Runner %s go: %w", p.runner.Name, err)
	}
	p.over = true
	return false, nil
}

// removePod has the pod removed, or says what keeps it.
func (r *Reconciler) removePod(ctx context.Context, p *pass) error {
	if !p.pod.Deleting.IsZero() {
		r.attempted(p, nil)
		p.lookAt(r.options.Now().Add(blockedAgain)) // registered's controller of pods sees to the rest
		return nil
	}
	answer, err := r.service.RemovePod(ctx, p.pod)
	r.attempted(p, err)
	if apierrors.IsConflict(err) {
		p.lookAt(r.options.Now().Add(retryFirst)) // it has changed since, and what the change was decides
		return nil
	}
	if err != nil {
		return err
	}
	if answer.Verdict == lifecycle.Granted {
		unblocked(p)
		p.unregistered = p.pod.RunnerID != 0 // or unknown: it is looked up by its name once more
		return nil
	}
	blocked(p, answer)
	p.lookAt(again(answer, r.options.Now()))
	return nil
}

// hold stores the runner's name at GitHub and the finalizer before the runner is registered.
func (r *Reconciler) hold(ctx context.Context, p *pass) (bool, error) {
	if p.who.RunnerName != "" && controllerutil.ContainsFinalizer(p.runner, runnerpod.FinalizerRegistration) {
		return true, nil
	}
	return true, r.store(ctx, p, p.who.RunnerName)
}

// store writes the finalizer and the name at GitHub; an empty name is generated.
func (r *Reconciler) store(ctx context.Context, p *pass, name string) error {
	if name == "" {
		name = r.options.NewName(p.runner.Name)
	}
	base := p.runner.DeepCopy()
	controllerutil.AddFinalizer(p.runner, runnerpod.FinalizerRegistration)
	metav1.SetMetaDataAnnotation(&p.runner.ObjectMeta, runnerpod.AnnotationRunnerName, name)
	if err := r.client.Patch(ctx, p.runner, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("storing the name of Runner %s: %w", p.runner.Name, err)
	}
	p.who = identity(p.runner)
	return nil
}

// end handles a Runner whose pod has ended, is being deleted, or is gone. It gets no other pod (RUN-7). Its owner deletes it; a Runner
// without an owner, or one whose pod a user has deleted, deletes itself.
func (r *Reconciler) end(ctx context.Context, p *pass) (bool, error) {
	if !p.spent {
		return true, nil
	}
	gone := p.pod == nil
	deleted := gone || !p.pod.Deleting.IsZero()
	over := deleted || p.pod.Ended || p.place.Lost(r.options.Now())
	if !over {
		return true, nil
	}
	if metav1.GetControllerOf(p.runner) != nil && !deleted {
		return false, nil
	}
	err := r.client.Delete(ctx, p.runner, client.Preconditions{UID: ptr.To(p.runner.UID)})
	r.attempted(p, client.IgnoreNotFound(err))
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting Runner %s: %w", p.runner.Name, err)
	}
	return false, nil
}

// check reports whether pods can be built from the spec. Only a change of the spec helps, so there is no retry.
func (r *Reconciler) check(_ context.Context, p *pass) (bool, error) {
	_, err := registered.BuildPod(p.who, r.options.Pod)
	var invalid *runnerpod.InvalidTemplateError
	switch {
	case errors.As(err, &invalid):
		r.tell(p, v1alpha1.ConditionValid, metav1.ConditionFalse, "InvalidTemplate", invalid.Problem)
		return p.pod != nil, nil
	case err != nil:
		return false, err
	}
	if refused := condition(&p.status, v1alpha1.ConditionValid); refused != nil && refused.Status == metav1.ConditionFalse &&
		refused.Reason == reasonRefused && refused.ObservedGeneration == p.runner.Generation {
		return p.pod != nil, nil // the API server has refused the pod, and would again
	}
	r.tell(p, v1alpha1.ConditionValid, metav1.ConditionTrue, "Valid", "pods can be created from the spec")
	return true, nil
}

// register sees to it that there is something to register with. Of a runner that GitHub knows nothing more is needed.
func (r *Reconciler) register(ctx context.Context, p *pass) (bool, error) {
	if p.pod != nil && (p.pod.Ended || registered.Ephemeral(&p.runner.Spec) && p.pod.RunnerID != 0 && p.pod.SecretMissing.IsZero()) {
		return true, nil
	}
	now := r.options.Now()
	if last, pausing := r.pauses.pausing(p.key(), p.runner.Generation, now); pausing {
		set(p, v1alpha1.ConditionRegistered, metav1.ConditionFalse, last.reason, last.message)
		p.lookAt(last.until)
		return false, nil
	}
	done, err := r.service.Prepare(ctx, p.who, p.pod, p.spent)
	if err != nil {
		return false, r.notRegistered(ctx, p, err)
	}
	if p.spent { // what refuses a pod is asked less and less often, although everything is prepared for it
		r.pauses.end(p.key())
	}
	p.who.RunnerName, p.who.RunnerID, p.who.Target = done.RunnerName, done.RunnerID, done.Target
	p.status.RunnerName = done.RunnerName
	if done.RunnerID != 0 {
		p.status.RunnerID = done.RunnerID
	}
	p.status.TokenExpiresAt = nil
	if !done.TokenExpiresAt.IsZero() {
		p.status.TokenExpiresAt = &metav1.Time{Time: done.TokenExpiresAt.Truncate(time.Second)}
	}
	p.lookAt(done.Next)
	return true, nil
}

// notRegistered says what keeps a runner from being registered, and when it is retried. A problem that needs a person is retried slowly;
// one that a change of the spec or of the Secret solves is retried at once after that.
func (r *Reconciler) notRegistered(ctx context.Context, p *pass, err error) error {
	var limited *fleet.RateLimitedError
	var later *registered.NotBeforeError
	pause := func(reason string, first, slowest time.Duration, notBefore time.Time) error {
		r.pause(p, reason, oneLine(err.Error()), first, slowest, notBefore)
		return nil
	}
	switch {
	case errors.Is(err, registered.ErrRename):
		p.lookAt(r.options.Now().Add(time.Millisecond))
		return r.store(ctx, p, r.options.NewName(p.runner.Name))
	case errors.Is(err, registered.ErrSpent):
		r.tell(p, v1alpha1.ConditionRegistered, metav1.ConditionFalse, "RegistrationUsed", "its Secret is missing or incomplete, and a runner registers only once: delete this Runner, or let its owner replace it")
		return nil
	case errors.Is(err, registered.ErrForeignSecret):
		// Most often it is of a Runner that had this name before, and the garbage collector takes it in a moment.
		return pause("SecretTaken", retryFirst, faultFirst, time.Time{})
	case errors.Is(err, registration.ErrCredentials):
		return pause("NoCredentials", faultFirst, faultSlowest, time.Time{})
	case errors.Is(err, registration.ErrTarget), errors.Is(err, fleet.ErrForbidden), errors.Is(err, fleet.ErrRejected):
		return pause("NotAllowed", faultFirst, faultSlowest, time.Time{})
	case errors.As(err, &limited):
		return pause("RateLimited", retryFirst, retrySlowest, limited.Until)
	case errors.As(err, &later):
		return pause("Retrying", retryFirst, retrySlowest, later.NotBefore)
	case errors.Is(err, context.Canceled):
		return err
	default:
		return pause("Retrying", retryFirst, retrySlowest, time.Time{})
	}
}

// pause tells why the Runner cannot be registered, and has it left alone for a time.
func (r *Reconciler) pause(p *pass, reason, message string, first, slowest time.Duration, notBefore time.Time) {
	r.tell(p, v1alpha1.ConditionRegistered, metav1.ConditionFalse, reason, message)
	p.lookAt(r.pauses.begin(p.key(), p.runner.Generation, reason, message, first, slowest, notBefore, r.options.Now()))
}

// create makes the pod, once. That it is there already is success: an earlier try got that far.
func (r *Reconciler) create(ctx context.Context, p *pass) (bool, error) {
	if p.spent {
		return true, nil // RUN-7
	}
	var err error
	if p.who.PullSecrets, err = r.pullSecrets(ctx, p.runner); err != nil {
		return false, err
	}
	pod, err := registered.BuildPod(p.who, r.options.Pod)
	if err != nil {
		return false, err
	}
	switch err := r.client.Create(ctx, pod); {
	case err == nil:
		p.status.PodUID = string(pod.UID)
	case apierrors.IsAlreadyExists(err):
		there, exists, err := r.service.Fresh(ctx, p.key())
		if err != nil {
			return false, err
		}
		if !exists || there.Owner.UID != string(p.runner.UID) {
			r.pause(p, "PodNameTaken", "a pod with this name exists and belongs to something else: waiting for its deletion", blockedAgain, blockedAgain, time.Time{})
			return false, nil
		}
		p.pod, p.status.PodUID = &there, there.UID
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		r.tell(p, v1alpha1.ConditionValid, metav1.ConditionFalse, reasonRefused, oneLine("the API server rejects the pod: "+err.Error()))
		return false, nil
	case apierrors.IsForbidden(err): // a quota, or an admission policy
		r.pause(p, "PodRefused", oneLine("the API server rejects the pod, retrying: "+err.Error()), 30*time.Second, faultFirst, time.Time{})
		return false, nil
	default:
		return false, fmt.Errorf("creating the pod of Runner %s: %w", p.runner.Name, err)
	}
	p.spent = true
	r.pauses.end(p.key())
	return true, nil
}

// pullSecrets are what the API server adds to pods that name none, of the pod's ServiceAccount. With job containers a pod names one.
func (r *Reconciler) pullSecrets(ctx context.Context, runner *v1alpha1.Runner) ([]corev1.LocalObjectReference, error) {
	template := &runner.Spec.Template.Spec
	if runner.Spec.JobContainers == nil || len(template.ImagePullSecrets) > 0 {
		return nil, nil
	}
	name := cmp.Or(template.ServiceAccountName, template.DeprecatedServiceAccount, "default")
	var account corev1.ServiceAccount
	err := r.reader.Get(ctx, client.ObjectKey{Namespace: runner.Namespace, Name: name}, &account)
	if client.IgnoreNotFound(err) != nil { // the API server says itself that there is none
		return nil, fmt.Errorf("reading the pull secrets of ServiceAccount %s/%s: %w", runner.Namespace, name, err)
	}
	return account.ImagePullSecrets, nil
}

// reasonRefused: the API server has refused a pod that was built from the spec.
const reasonRefused = "PodInvalid"

// again is when a removal is retried: as the answer says, or at a pace that costs nothing. Changes of the runner itself arrive as events of
// its pod.
func again(answer lifecycle.Answer, now time.Time) time.Time {
	if !answer.NotBefore.IsZero() {
		return answer.NotBefore
	}
	return now.Add(blockedAgain)
}

// wasSettled reports whether the runner's registration was seen to be gone, or its end was, so that what held its pod has seen to
// that. A pod that has vanished proves neither.
func wasSettled(s *v1alpha1.RunnerStatus) bool {
	c := condition(s, v1alpha1.ConditionRegistered)
	return c != nil && c.Status == metav1.ConditionFalse && (c.Reason == reasonUnregistered || c.Reason == reasonEnded)
}

// Reasons of the condition Registered when nothing is registered any more.
const (
	reasonUnregistered = "Unregistered"
	reasonEnded        = "Ended"
)
