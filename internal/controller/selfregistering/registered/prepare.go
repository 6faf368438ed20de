package registered

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Errors of Prepare, beside those of packages registration and fleet.
var (
	// ErrRename: a runner of that name exists at GitHub, or has existed, so that this one needs another: choose it by
	// NewRunnerName, store it, and prepare again. Of a StatefulSet, whose pod has the name already, another must be made; its
	// pod has not started.
	ErrRename = errors.New("the runner needs another name at GitHub")
	// ErrSpent: the runner's pod has existed, and what it was to register with is gone. It is never made again (RUN-7).
	ErrSpent = errors.New("the runner's registration credentials were used and are gone")
	// ErrForeignSecret: the Secret of that name is not this runner's. It lasts until the Secret is deleted.
	ErrForeignSecret = errors.New("the Secret of the runner's name belongs to something else")
)

// NotBeforeError: it is of no use to try again before that moment.
type NotBeforeError struct {
	Why       string
	NotBefore time.Time
}

// Error is the sentence for a person.
func (e *NotBeforeError) Error() string { return e.Why }

// renewBefore is how long before its end a token is replaced: a runner may take a while to use it.
const renewBefore = 10 * time.Minute

// Prepared is a runner that may be started: its Secret exists.
type Prepared struct {
	// RunnerName is the name that it is registered by.
	RunnerName string
	// RunnerID is GitHub's id of an ephemeral runner's registration; 0 for a static one, which registers itself.
	RunnerID int64
	// Target is where it is registered, as GitHub knows it.
	Target registration.Target
	// Credentials is the name of the Secret that it was registered with; empty for the installation's own.
	Credentials string
	// TokenExpiresAt is when a static runner's token expires; zero for an ephemeral one, and once the token is blank.
	TokenExpiresAt time.Time
	// Next is when Prepare must be called again, to renew the token; zero for never.
	Next time.Time
}

// remembered is what is known of a Secret without reading it again.
type remembered struct {
	facts runnerpod.RegistrationFacts
	blank bool
	Prepared
}

// Prepare sees to it that the runner has what it registers with, in its Secret: a just-in-time configuration that is minted
// once, or a token that is renewed until GitHub knows the runner. It is called again and again, and does nothing where all is
// well. pod is its pod as it was observed last, nil where there is none; podExisted says that there was one at any time.
//
// Errors are ErrRename, ErrSpent, ErrForeignSecret, *NotBeforeError, those of package registration, and of the API server.
func (s *Service) Prepare(ctx context.Context, i Identity, pod *View, podExisted bool) (Prepared, error) {
	podExisted = podExisted || pod != nil
	i.keepPlace(pod)
	wanted := i.facts()
	if done, known := s.recall(&i, wanted, pod); known {
		return done, s.project(ctx, pod, done)
	}
	secret, err := s.secretOf(ctx, &i)
	if err != nil {
		return Prepared{}, err
	}
	var done Prepared
	if Ephemeral(i.Spec) {
		done, err = s.prepareOnce(ctx, &i, secret, podExisted)
	} else {
		done, err = s.prepareToken(ctx, &i, secret, pod, podExisted)
	}
	if err != nil {
		return Prepared{}, err
	}
	known := pod != nil && !pod.Registered.IsZero()
	s.mu.Lock()
	s.prepared[i.Owner.UID] = remembered{facts: wanted, blank: known, Prepared: done}
	s.mu.Unlock()
	return done, s.project(ctx, pod, done)
}

// keepPlace keeps the registration target of a runner whose pod has a node: the runner may have read it, and be busy there before GitHub's
// list shows it. Looked up in another target it would be absent, and removed without GitHub's consent (RUN-2).
func (i *Identity) keepPlace(pod *View) {
	if pod == nil || pod.Placed.IsZero() || pod.Target == (registration.Target{}) || Ephemeral(i.Spec) {
		return
	}
	spec := *i.Spec
	spec.Enterprise, spec.Organization, spec.Repository, spec.Group = pod.Target.Enterprise, pod.Target.Organization, pod.Target.Repository, pod.Target.Group
	i.Spec = &spec
}

// recall returns the last outcome if nothing has changed since. Without a pod the Secret is read each time: a pod must not be created
// without it.
func (s *Service) recall(i *Identity, wanted runnerpod.RegistrationFacts, pod *View) (Prepared, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.prepared[i.Owner.UID]
	switch {
	case !known || pod == nil || !pod.SecretMissing.IsZero():
		return Prepared{}, false
	case Ephemeral(i.Spec):
		return last.Prepared, true // it is never changed
	case !pod.Registered.IsZero():
		return last.Prepared, last.blank
	default:
		same := last.facts
		same.Name, same.ID, same.RepositoryID = wanted.Name, wanted.ID, wanted.RepositoryID
		return last.Prepared, same == wanted && !last.blank && s.now().Before(last.Next)
	}
}

// secretOf reads the runner's Secret past every cache; nil where there is none.
func (s *Service) secretOf(ctx context.Context, i *Identity) (*corev1.Secret, error) {
	var secret corev1.Secret
	err := s.reader.Get(ctx, types.NamespacedName{Namespace: i.Namespace, Name: SecretName(i.Name)}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the Secret of runner %s: %w", i.Name, err)
	case !owned(&secret, i.Owner.UID):
		return nil, fmt.Errorf("Secret %s: %w: remove it, or choose another name for the runner", secret.Name, ErrForeignSecret)
	}
	return &secret, nil
}

func owned(object metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == uid })
}

// prepareOnce mints an ephemeral runner's configuration, unless there is one: exactly once, whatever answer was lost. The
// name was stored before, so that a registration that was made without our hearing of it is found by it.
func (s *Service) prepareOnce(ctx context.Context, i *Identity, secret *corev1.Secret, podExisted bool) (Prepared, error) {
	if secret != nil && podExisted && len(secret.Data[runnerpod.KeyJIT]) == 0 {
		return Prepared{}, ErrSpent // another client has replaced it
	}
	if secret != nil {
		facts, err := runnerpod.RegistrationOf(secret)
		if err != nil {
			return Prepared{}, err
		}
		return Prepared{RunnerName: facts.Name, RunnerID: facts.ID, Target: targetIn(facts), Credentials: facts.Credentials}, nil
	}
	if podExisted {
		return Prepared{}, ErrSpent // RUN-7: never a second configuration for one runner
	}
	registrar, err := s.options.Registrars.For(ctx, credentials(i.Namespace, i.Spec), target(i.Spec))
	if err != nil {
		return Prepared{}, fmt.Errorf("registering runner %s: %w", i.Name, err)
	}
	jit, err := registrar.JIT(ctx, registration.JITRequest{Name: i.RunnerName, Labels: labelsOf(i), WorkFolder: i.Spec.WorkFolder})
	if errors.Is(err, fleet.ErrNameTaken) {
		return Prepared{}, s.reclaim(ctx, registrar, i.RunnerName)
	}
	if err != nil {
		return Prepared{}, fmt.Errorf("registering runner %s: %w", i.Name, err)
	}
	faultpoint.Reached(faultpoint.MintAnswered)
	done := Prepared{
		RunnerName: i.RunnerName, RunnerID: jit.RunnerID, Target: registrar.Target(), Credentials: credentials(i.Namespace, i.Spec).Secret,
	}
	made, err := s.newSecret(i, done, map[string][]byte{runnerpod.KeyJIT: []byte(jit.Encoded.Reveal())})
	if err != nil {
		return Prepared{}, err
	}
	made.Immutable = ptr.To(true)
	if err := s.client.Create(ctx, made); err != nil {
		// The registration stays behind, and the next try finds it by its name.
		return Prepared{}, fmt.Errorf("creating the Secret of runner %s: %w", i.Name, err)
	}
	return done, nil
}

// labelsOf are the labels of an ephemeral runner: as for GitHub's own registration of a static one, self-hosted and those of its operating
// system and architecture, unless disabled, and its own.
func labelsOf(i *Identity) []string {
	var labels []string
	if !i.Spec.NoDefaultLabels {
		labels = []string{"self-hosted", "Linux"}
		node := v1alpha1.Architecture(i.Spec.Template.Spec.NodeSelector[corev1.LabelArchStable])
		if label := cmp.Or(node, v1alpha1.ArchitectureAMD64).RunnerLabel(); label != "" {
			labels = append(labels, label)
		}
	}
	for _, own := range i.Spec.Labels {
		if !slices.ContainsFunc(labels, func(l string) bool { return strings.EqualFold(l, own) }) {
			labels = append(labels, own)
		}
	}
	return labels
}

// reclaim finds out which runner has the name at GitHub. An unused registration is one of ours whose response was lost, and is removed; a
// busy runner belongs to another installation. Either way the name is not used again.
func (s *Service) reclaim(ctx context.Context, registrar registration.Registrar, name string) error {
	there, err := registrar.Find(ctx, name)
	switch {
	case errors.Is(err, github.ErrAbsent):
		return fmt.Errorf("%w: %s was taken a moment ago", ErrRename, name)
	case err != nil:
		return fmt.Errorf("looking for the runner that is named %s: %w", name, err)
	case there.Online || there.Busy:
		return fmt.Errorf("%w: %s is busy with another job", ErrRename, name)
	}
	answer := registrar.Remove(ctx, registration.Subject{ID: there.ID, Name: name, NeverStarted: true})
	if answer.Verdict == lifecycle.Unknown {
		return &NotBeforeError{Why: "removing the registration whose response was lost: " + answer.Detail, NotBefore: answer.NotBefore}
	}
	return fmt.Errorf("%w: %s was registered, but the response was lost", ErrRename, name)
}

// prepareToken gives a static runner a token, renews it, and removes it once GitHub knows the runner.
func (s *Service) prepareToken(ctx context.Context, i *Identity, secret *corev1.Secret, pod *View, podExisted bool) (Prepared, error) {
	switch {
	case secret == nil && pod != nil && !pod.Registered.IsZero(): // it works on without
		return Prepared{RunnerName: pod.RunnerName, Target: pod.Target, Credentials: pod.Credentials.Secret}, nil
	case secret == nil && podExisted && pod == nil:
		return Prepared{}, ErrSpent
	}
	wanted := i.facts()
	var done Prepared
	if secret != nil {
		facts, err := runnerpod.RegistrationOf(secret)
		if err != nil {
			return Prepared{}, err
		}
		done = Prepared{RunnerName: facts.Name, Target: targetIn(facts), Credentials: facts.Credentials}
		if pod != nil && !pod.Registered.IsZero() {
			return done, s.blank(ctx, secret)
		}
		expires, _ := time.Parse(time.RFC3339, secret.Annotations[runnerpod.AnnotationTokenExpires])
		facts.RepositoryID, facts.ID = wanted.RepositoryID, wanted.ID
		if len(secret.Data[runnerpod.KeyToken]) > 0 && facts == wanted && s.now().Before(expires.Add(-renewBefore)) {
			done.TokenExpiresAt, done.Next = expires, expires.Add(-renewBefore)
			return done, nil
		}
	}
	registrar, err := s.options.Registrars.For(ctx, credentials(i.Namespace, i.Spec), target(i.Spec))
	if err != nil {
		return Prepared{}, fmt.Errorf("registering runner %s: %w", i.Name, err)
	}
	token, err := registrar.Token(ctx)
	if err != nil {
		return Prepared{}, fmt.Errorf("getting a token for runner %s: %w", i.Name, err)
	}
	done = Prepared{
		RunnerName: i.RunnerName, Target: registrar.Target(), Credentials: wanted.Credentials,
		TokenExpiresAt: token.ExpiresAt, Next: token.ExpiresAt.Add(-renewBefore),
	}
	data := map[string][]byte{
		runnerpod.KeyToken: []byte(token.Value.Reveal()), runnerpod.KeyURL: []byte(token.URL), runnerpod.KeyName: []byte(i.RunnerName),
		runnerpod.KeyLabels: []byte(strings.Join(i.Spec.Labels, ",")), runnerpod.KeyGroup: []byte(i.Spec.Group), runnerpod.KeyWorkFolder: []byte(i.Spec.WorkFolder),
	}
	if i.Spec.NoDefaultLabels {
		data[runnerpod.KeyNoDefaultLabels] = []byte("true")
	}
	made, err := s.newSecret(i, done, data)
	if err != nil {
		return Prepared{}, err
	}
	made.Annotations[runnerpod.AnnotationTokenExpires] = token.ExpiresAt.UTC().Format(time.RFC3339)
	if secret == nil {
		err = s.client.Create(ctx, made)
	} else {
		base := secret.DeepCopy()
		secret.Labels, secret.Annotations, secret.OwnerReferences, secret.Data = made.Labels, made.Annotations, made.OwnerReferences, made.Data
		err = s.client.Patch(ctx, secret, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	}
	if err != nil {
		return Prepared{}, fmt.Errorf("writing the Secret of runner %s: %w", i.Name, err)
	}
	return done, nil
}

// blank removes the token from a Secret: a job in the pod could register runners with it.
func (s *Service) blank(ctx context.Context, secret *corev1.Secret) error {
	if len(secret.Data[runnerpod.KeyToken]) == 0 {
		return nil
	}
	base := secret.DeepCopy()
	secret.Data[runnerpod.KeyToken] = []byte{} // the key stays: pods of an older version have a variable that names it
	delete(secret.Annotations, runnerpod.AnnotationTokenExpires)
	if err := s.client.Patch(ctx, secret, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("taking the token out of Secret %s: %w", secret.Name, err)
	}
	return nil
}

func (s *Service) newSecret(i *Identity, done Prepared, data map[string][]byte) (*corev1.Secret, error) {
	facts := i.facts()
	facts.Name, facts.ID, facts.RepositoryID = done.RunnerName, done.RunnerID, done.Target.RepositoryID
	annotations, err := facts.Annotations()
	if err != nil {
		return nil, err
	}
	meta := metav1.ObjectMeta{
		Namespace: i.Namespace, Name: SecretName(i.Name), Annotations: annotations, OwnerReferences: []metav1.OwnerReference{i.Owner},
		Labels: map[string]string{runnerpod.LabelSelfRegistering: "true"},
	}
	for _, key := range []string{runnerpod.LabelDeployment, runnerpod.LabelReplicaSet, runnerpod.LabelRunnerSet} {
		if value := i.Labels[key]; value != "" {
			meta.Labels[key] = value
		}
	}
	return &corev1.Secret{ObjectMeta: meta, Type: runnerpod.SecretTypeRegistration, Data: data}, nil
}

func targetIn(facts runnerpod.RegistrationFacts) registration.Target {
	return registration.Target{
		Enterprise: facts.Enterprise, Organization: facts.Organization, Repository: facts.Repository,
		RepositoryID: facts.RepositoryID, Group: facts.Group,
	}
}

// project writes on the pod what it was made without, or what has changed before its runner was registered: the pod alone
// must be enough to unregister it.
func (s *Service) project(ctx context.Context, pod *View, done Prepared) error {
	if pod == nil || pod.Ended || !pod.Registered.IsZero() || pod.RunnerName == "" {
		return nil
	}
	id := pod.RunnerID
	if done.RunnerID != 0 {
		id = done.RunnerID
	}
	if pod.Target == done.Target && pod.RunnerID == id && pod.Credentials.Secret == done.Credentials {
		return nil
	}
	s.mu.Lock()
	now := s.projected[pod.UID]
	s.mu.Unlock()
	if now == done {
		return nil // the cache does not show it yet
	}
	facts := pod.facts
	facts.ID, facts.Enterprise, facts.Organization, facts.Repository = id, done.Target.Enterprise, done.Target.Organization, done.Target.Repository
	facts.RepositoryID, facts.Group, facts.Credentials = done.Target.RepositoryID, done.Target.Group, done.Credentials
	annotations, err := facts.Annotations()
	if err != nil {
		return err
	}
	if err := s.annotate(ctx, pod, annotations); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.projected[pod.UID] = done
	return nil
}

// annotate writes on exactly that pod. That it is gone is no failure.
func (s *Service) annotate(ctx context.Context, pod *View, annotations map[string]string) error {
	patch := map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": maps.Clone(annotations)}}
	return s.patchPod(ctx, pod, patch)
}
