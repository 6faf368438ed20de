package registered

import (
	"crypto/rand"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Identity is one self-registering runner: its backing, and its desired state.
type Identity struct {
	// Namespace and Name of the Runner or the StatefulSet that stands behind it. A Runner's pod has its name, a StatefulSet's
	// that name and -0; the Secret of both is named by SecretName.
	Namespace, Name string
	// Owner is the reference to it that the Secret and the pod have. Required.
	Owner metav1.OwnerReference
	// StatefulSet indicates that it is one, and Claims are then the names of the volumes that it gives the pod.
	StatefulSet bool
	Claims      []string
	// RunnerName is the runner's name at GitHub: see NewRunnerName. It is stored in the annotation runnerpod.AnnotationRunnerName of the
	// runner's backing before the first request to GitHub that names it.
	RunnerName string
	// RunnerID and Target are what Prepare has said of the registration, where that is known already.
	RunnerID int64
	Target   registration.Target
	// Spec is what the runner should be. Required.
	Spec *v1alpha1.RunnerSpec
	// TemplateHash is runnerpod.RegisteredHash of its owner's template.
	TemplateHash string
	// PullSecrets are those of the pod's ServiceAccount: see runnerpod.Registered.
	PullSecrets []corev1.LocalObjectReference
	// Labels and Annotations that the pod has beside those of the template and of this package: LabelReplicaSet and such.
	Labels, Annotations map[string]string
}

// Key names what stands behind the runner.
func (i *Identity) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: i.Namespace, Name: i.Name}
}

// PodName is the name of its pod.
func (i *Identity) PodName() string {
	if i.StatefulSet {
		return i.Name + "-0"
	}
	return i.Name
}

// SecretName is the name of the Secret with which the runner behind that name registers.
func SecretName(name string) string { return name + "-registration" }

// nameSuffixLength is that of the random end of a name at GitHub: names of Runners have at most 58 characters, and GitHub
// allows 64.
const nameSuffixLength = 5

// NewRunnerName makes a name at GitHub for the runner behind that name: one that was never used before (CLAIM-10).
func NewRunnerName(name string) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	raw := make([]byte, nameSuffixLength)
	_, _ = rand.Read(raw) // never fails: see crypto/rand
	for i, b := range raw {
		raw[i] = alphabet[int(b)%len(alphabet)]
	}
	return name + "-" + string(raw)
}

// target is where the runner is registered, as its spec says.
func target(spec *v1alpha1.RunnerSpec) registration.Target {
	return registration.Target{
		Enterprise: spec.Enterprise, Organization: spec.Organization, Repository: spec.Repository, Group: spec.Group,
	}
}

// credentials are what it is registered with, as its spec says.
func credentials(namespace string, spec *v1alpha1.RunnerSpec) registration.Credentials {
	c := registration.Credentials{Namespace: namespace}
	if spec.Credentials != nil {
		c.Secret = spec.Credentials.SecretName
	}
	return c
}

// Ephemeral reports whether runners of the spec take one job and end.
func Ephemeral(spec *v1alpha1.RunnerSpec) bool { return spec.Ephemeral == nil || *spec.Ephemeral }

// facts of the runner's registration, as its spec and what is known of it say.
func (i *Identity) facts() runnerpod.RegistrationFacts {
	at := i.Target
	if at == (registration.Target{}) {
		at = target(i.Spec)
	}
	facts := runnerpod.RegistrationFacts{
		Name: i.RunnerName, ID: i.RunnerID, Enterprise: at.Enterprise, Organization: at.Organization, Repository: at.Repository,
		RepositoryID: at.RepositoryID, Group: at.Group, Credentials: credentials(i.Namespace, i.Spec).Secret,
		Kubernetes: i.Spec.ContainerMode == v1alpha1.ContainerModeKubernetes,
	}
	if i.Spec.RegistrationTimeout != nil {
		facts.TimeoutSeconds = int64(i.Spec.RegistrationTimeout.Seconds())
	}
	return facts
}

// BuildPod makes the runner's pod, or, for a StatefulSet, the input of its template: metadata without a name, and a spec that restarts
// containers. A template that breaks a safety rule is a *runnerpod.InvalidTemplateError, with a sentence for a person; it lasts until the
// spec is changed.
func BuildPod(i Identity, options runnerpod.Options) (*corev1.Pod, error) {
	facts := i.facts()
	r := runnerpod.Registered{
		Namespace: i.Namespace, Name: i.Name, Secret: SecretName(i.Name), Spec: i.Spec, TemplateHash: i.TemplateHash,
		Labels: i.Labels, Annotations: i.Annotations, Facts: facts, StatefulSet: i.StatefulSet, Claims: i.Claims,
		PullSecrets: i.PullSecrets,
	}
	if !i.StatefulSet {
		r.Owners = []metav1.OwnerReference{i.Owner}
	}
	return runnerpod.BuildRegistered(r, options)
}
