package runner

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

func condition(s *v1alpha1.RunnerStatus, kind string) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, kind)
}

// set sets a condition of the status to be written.
func set(p *pass, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: p.runner.Generation,
	})
}

// tell sets a condition, and writes an Event about a turn for the worse: once, and again when the reason is another.
func (r *Reconciler) tell(p *pass, kind string, status metav1.ConditionStatus, reason, message string) {
	before := condition(&p.runner.Status, kind)
	set(p, kind, status, reason, message)
	if status != metav1.ConditionFalse || before != nil && before.Status == status && before.Reason == reason {
		return
	}
	r.warn(p, reason, message)
}

// warn writes an Event.
func (r *Reconciler) warn(p *pass, reason, message string) {
	about := &v1alpha1.Runner{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindRunner},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.runner.Namespace, Name: p.runner.Name, UID: p.runner.UID},
	}
	r.events.Eventf(about, nil, corev1.EventTypeWarning, reason, "Register", "%s", message)
}

func blocked(p *pass, answer lifecycle.Answer) {
	reason, why := "Unknown", "it is unknown whether it is busy"
	if answer.Verdict == lifecycle.Busy {
		reason, why = "Busy", "it is busy"
	}
	if answer.Detail != "" {
		why = answer.Detail
	}
	set(p, v1alpha1.ConditionRemovalBlocked, metav1.ConditionTrue, reason, oneLine("waiting for GitHub to allow the removal: "+why))
}

// attempted records the result of one more attempt to delete the Runner or its pod (POOL-10).
func (r *Reconciler) attempted(p *pass, err error) {
	now := r.options.Now()
	registered.ShowRefusal(&p.status.Conditions, registered.RefusalIn(p.status.Conditions).After(err, now), p.runner.Generation, now)
}

func unblocked(p *pass) {
	meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.ConditionRemovalBlocked)
}

// show writes the status, where it says something new.
func (r *Reconciler) show(ctx context.Context, p *pass) error {
	s := &p.status
	s.ObservedGeneration = p.runner.Generation
	now := r.options.Now()
	if p.pod != nil {
		s.PodUID = p.pod.UID
		if p.pod.RunnerID != 0 {
			s.RunnerID = p.pod.RunnerID
		}
		if p.pod.RunnerName != "" {
			s.RunnerName = p.pod.RunnerName
		}
	}
	stage, message := r.stage(p, now)
	s.Stage, s.Message = stage.String(), oneLine(message)
	r.registered(p, now)
	if controllerutil.ContainsFinalizer(p.runner, runnerpod.FinalizerRegistration) {
		set(p, v1alpha1.ConditionDeletionProtected, metav1.ConditionTrue, runnerpod.ReasonFinalizer, runnerpod.HeldMessage(runnerpod.FinalizerRegistration, p.runner.Namespace))
	}
	if stage != lifecycle.StageTerminating && stage != lifecycle.StageBusy && p.runner.DeletionTimestamp.IsZero() {
		unblocked(p)
	}
	if equality.Semantic.DeepEqual(p.runner.Status, *s) {
		return nil
	}
	changed := p.runner.DeepCopy()
	changed.Status = *s
	if err := r.client.Status().Patch(ctx, changed, client.MergeFrom(p.runner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of Runner %s: %w", p.runner.Name, err)
	}
	return nil
}

// registered sets the condition Registered: whether GitHub knows the runner.
func (r *Reconciler) registered(p *pass, now time.Time) {
	v := p.pod
	switch {
	case v == nil:
		return
	case v.Ended:
		set(p, v1alpha1.ConditionRegistered, metav1.ConditionFalse, reasonEnded, "the runner exited")
	case !v.Unregistered.IsZero(), p.unregistered:
		set(p, v1alpha1.ConditionRegistered, metav1.ConditionFalse, reasonUnregistered, "GitHub has removed its registration")
	case !v.Deleting.IsZero(), !v.SecretMissing.IsZero() && !v.Started:
		return
	case !v.Registered.IsZero():
		set(p, v1alpha1.ConditionRegistered, metav1.ConditionTrue, "Registered", "registered at GitHub as "+v.RunnerName)
	case v.Unseen.IsZero() || v.Overdue(0).IsZero() || now.Before(v.Overdue(0)):
		if v.Ephemeral {
			set(p, v1alpha1.ConditionRegistered, metav1.ConditionTrue, "NotConnected", "registered at GitHub as "+v.RunnerName+"; the runner has not connected yet")
			return
		}
		set(p, v1alpha1.ConditionRegistered, metav1.ConditionFalse, "Registering", "the runner has not registered yet")
	default:
		r.tell(p, v1alpha1.ConditionRegistered, metav1.ConditionFalse, string(registered.ReasonRegistrationTimeout),
			"the runner is up, but GitHub does not list it: check its log and its network access to GitHub")
	}
}

// stage says where the Runner is in its life, and in a sentence what it does.
func (r *Reconciler) stage(p *pass, now time.Time) (lifecycle.Stage, string) {
	v := p.pod
	if v == nil {
		switch {
		case p.status.Stage == lifecycle.StageFinished.String(): // its end was observed
			return lifecycle.StageFinished, p.status.Message
		case !p.runner.DeletionTimestamp.IsZero():
			return lifecycle.StageTerminating, "being removed"
		case p.runner.Status.PodUID != "":
			return lifecycle.StageFinished, "its pod is gone and is not recreated"
		case p.status.PodUID != "":
			return lifecycle.StageStarting, "its pod was created"
		}
		for _, kind := range []string{v1alpha1.ConditionValid, v1alpha1.ConditionRegistered} {
			if c := condition(&p.status, kind); c != nil && c.Status == metav1.ConditionFalse {
				return lifecycle.StageStarting, c.Message
			}
		}
		return lifecycle.StageStarting, "registering"
	}
	seen := v.Runner(p.place, 0, now)
	switch {
	case v.Ended && v.End.Outdated():
		return seen.Stage, "GitHub rejects the runner's version as too old: use a newer image"
	case v.Ended && v.End.Exited:
		return seen.Stage, fmt.Sprintf("exited with code %d", v.End.ExitCode)
	case v.Ended:
		return seen.Stage, "exited: " + v.End.Reason
	case seen.Stage == lifecycle.StageLost:
		return seen.Stage, "its node " + v.Node + " no longer exists"
	case seen.Stage == lifecycle.StageBusy:
		return seen.Stage, v.Signs.Work()
	case !p.runner.DeletionTimestamp.IsZero():
		why := "being removed"
		if c := condition(&p.status, v1alpha1.ConditionRemovalBlocked); c != nil {
			why = c.Message
		}
		return lifecycle.StageTerminating, why
	case seen.Unfit.Detail != "":
		return seen.Stage, seen.Unfit.Detail
	case seen.Waiting != "":
		return seen.Stage, "waiting for " + seen.Waiting
	case seen.Stage == lifecycle.StageIdle:
		return seen.Stage, "idle"
	default:
		return seen.Stage, "starting"
	}
}

// oneLine keeps a text to what fits a condition.
func oneLine(text string) string {
	const longest = 500
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > longest {
		return strings.ToValidUTF8(line[:longest], "") + "…"
	}
	return line
}
