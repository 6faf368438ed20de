package registered

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// UnansweredSince is when GitHub was first asked without an answer to remove the registration of the object with that UID; zero when it has
// answered, or was not asked since this process started.
func (s *Service) UnansweredSince(uid types.UID) time.Time {
	return s.memory.unansweredSince(string(uid))
}

// Unregister has GitHub remove the registration of a runner that has no pod: none was made, or it has vanished. runnerID is
// what is known of it; podExisted says that there was a pod; ended, that it was seen to have ended, so that whatever held the pod
// has seen to its registration. It never fails: what is not known is lifecycle.Unknown.
func (s *Service) Unregister(ctx context.Context, i Identity, runnerID int64, podExisted, ended bool) lifecycle.Answer {
	granted := lifecycle.Answer{Verdict: lifecycle.Granted, Detail: "nothing is registered"}
	if i.RunnerName == "" || ended {
		return granted
	}
	subject := registration.Subject{ID: runnerID, Name: i.RunnerName, Ended: podExisted, NeverStarted: !podExisted}
	at, with := target(i.Spec), credentials(i.Namespace, i.Spec)
	var secret corev1.Secret
	err := s.reader.Get(ctx, types.NamespacedName{Namespace: i.Namespace, Name: SecretName(i.Name)}, &secret)
	if err == nil && owned(&secret, i.Owner.UID) {
		if facts, err := runnerpod.RegistrationOf(&secret); err == nil {
			at, with.Secret = targetIn(facts), facts.Credentials
			subject.Name = facts.Name
			if facts.ID != 0 {
				subject.ID = facts.ID
			}
		}
		if !Ephemeral(i.Spec) && !podExisted {
			return granted // no process has had the token
		}
	}
	shown := "without a pod"
	if last, again := s.memory.recall(string(i.Owner.UID), shown, false, s.now()); again {
		return last
	}
	leave, err := s.enter(ctx, with)
	if err != nil {
		return lifecycle.Answer{Detail: err.Error(), NotBefore: s.now().Add(pace.First)}
	}
	defer leave()
	var answer lifecycle.Answer
	if registrar, err := s.options.Registrars.For(ctx, with, at); err != nil {
		answer = registration.Unasked(err)
	} else {
		answer = registrar.Remove(ctx, subject)
	}
	return s.memory.note(&View{UID: string(i.Owner.UID)}, shown, false, answer, s.now())
}
