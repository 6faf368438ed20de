package registered

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// When the Secret is read of a pod that has a node and does not start.
const (
	missAfter = 30 * time.Second
	missAgain = time.Minute
)

// miss checks whether a pod that does not start waits for its own Secret. The kubelet waits for it without limit, and reports a missing
// Secret volume only in Events: the result is written on the pod, for the controllers of the runner (F 4.6). A static runner gets another
// token. An ephemeral one gets nothing more (RUN-7), and is replaced.
func (s *Service) miss(ctx context.Context, v *View, _ Place) (time.Time, error) {
	if v.Started || v.Ended || v.Placed.IsZero() || !v.Deleting.IsZero() || v.RunnerName == "" || v.Owner == (Owner{}) {
		return time.Time{}, nil
	}
	now := s.now()
	if due := v.Placed.Add(missAfter); now.Before(due) {
		return due, nil
	}
	lacks, err := s.lacking(ctx, v)
	if err != nil {
		return time.Time{}, err
	}
	switch missing := !v.SecretMissing.IsZero(); {
	case lacks == "" && missing:
		patch := map[string]any{"metadata": map[string]any{"uid": v.UID, "annotations": map[string]any{runnerpod.AnnotationSecretMissing: nil}}}
		err = s.patchPod(ctx, v, patch)
	case lacks != "" && !missing:
		err = s.annotate(ctx, v, map[string]string{runnerpod.AnnotationSecretMissing: now.UTC().Format(time.RFC3339)})
		s.event(v, corev1.EventTypeWarning, "SecretMissing", "Register", "The runner cannot start: %s", lacks)
	}
	return now.Add(missAgain), err
}

// lacking says what a pod's Secret lacks, so that its runner cannot start; empty for nothing.
func (s *Service) lacking(ctx context.Context, v *View) (string, error) {
	name := SecretName(v.Owner.Name)
	secret, err := s.secretOf(ctx, &Identity{Namespace: v.Namespace, Name: v.Owner.Name, Owner: v.Owner.reference()})
	switch {
	case errors.Is(err, ErrForeignSecret):
		return "the Secret " + name + " belongs to something else", nil
	case err != nil:
		return "", err
	case secret == nil:
		return "its Secret " + name + " is gone", nil
	}
	keys := []string{runnerpod.KeyJIT}
	if !v.Ephemeral {
		keys = []string{runnerpod.KeyToken, runnerpod.KeyURL, runnerpod.KeyName}
	}
	for _, key := range keys {
		if len(secret.Data[key]) == 0 {
			return "its Secret " + name + " has no " + key, nil
		}
	}
	return "", nil
}
