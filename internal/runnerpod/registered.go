package runnerpod

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Registered is one self-registering runner whose pod is to be built.
type Registered struct {
	// Namespace and Name of the pod. A pod of a StatefulSet is named by Kubernetes: Name is then the StatefulSet's.
	Namespace, Name string
	// Secret holds what the runner registers with.
	Secret string
	// Spec is what the runner should be.
	Spec *v1alpha1.RunnerSpec
	// TemplateHash of its owner's template.
	TemplateHash string
	// Labels and Annotations that its owner gives it, over those of the template.
	Labels, Annotations map[string]string
	// Owners of the pod; none for a pod of a StatefulSet, which adds itself.
	Owners []metav1.OwnerReference
	// Facts of its registration.
	Facts RegistrationFacts
	// StatefulSet demands that containers are started again, which the supervisor undoes. Claims are the names of the
	// volumes that it gives the pod.
	StatefulSet bool
	Claims      []string
}

// BuildRegistered makes the pod of one self-registering runner. It is pure, keeps no pointer into what it is given, and is
// idempotent: from a template that is such a pod already it makes the same pod (RUN-5). What must never happen whoever wrote
// the template is an *InvalidTemplateError.
func BuildRegistered(r Registered, options Options) (*corev1.Pod, error) {
	_ = options
	return nil, errors.New("not built yet")
}

// RegisteredHash tells runners of different templates apart. It covers the spec that shapes a runner, whatever else of its
// owner shapes it (such as volume claims), and the installation's options. Equal specs hash equally however their quantities
// are written, and so do defaults. It is a label's value of 32 characters.
func RegisteredHash(spec *v1alpha1.RunnerSpec, options Options, more ...any) (string, error) {
	return "", errors.New("not hashed yet")
}
