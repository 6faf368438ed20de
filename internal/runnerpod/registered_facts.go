package runnerpod

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RegistrationFacts say where the runner of a pod is registered, and with what: all that it takes to unregister it, also
// when nothing but the pod is left. They are written on the pod, but for its Name and ID, which have annotations of their own.
type RegistrationFacts struct {
	// Name is what GitHub knows the runner by, and ID the registration's id; 0 while that is not known.
	Name string `json:"-"`
	ID   int64  `json:"-"`

	Enterprise   string `json:"enterprise,omitempty"`
	Organization string `json:"organization,omitempty"`
	Repository   string `json:"repository,omitempty"`
	RepositoryID int64  `json:"repositoryID,omitempty"`
	Group        string `json:"group,omitempty"`
	// Credentials is the name of the Secret with the credentials; empty for the installation's own.
	Credentials string `json:"credentials,omitempty"`
	// Kubernetes: jobs of this runner may make pods and Secrets of their own.
	Kubernetes bool `json:"kubernetes,omitempty"`
}

// RegistrationOf reads the facts of a pod. It fails where they are missing or broken.
func RegistrationOf(pod *corev1.Pod) (RegistrationFacts, error) {
	var facts RegistrationFacts
	if err := json.Unmarshal([]byte(pod.Annotations[AnnotationRegistration]), &facts); err != nil {
		return RegistrationFacts{}, fmt.Errorf("reading where the runner of pod %s is registered: %w", pod.Name, err)
	}
	facts.Name = pod.Annotations[AnnotationRunnerName]
	facts.ID, _ = strconv.ParseInt(pod.Annotations[AnnotationRunnerID], 10, 64)
	return facts, nil
}

// annotate writes the facts down.
func (f RegistrationFacts) annotate(meta *metav1.ObjectMeta) error {
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("writing down where %s is registered: %w", f.Name, err)
	}
	metav1.SetMetaDataAnnotation(meta, AnnotationRegistration, string(text))
	metav1.SetMetaDataAnnotation(meta, AnnotationRunnerName, f.Name)
	delete(meta.Annotations, AnnotationRunnerID)
	if f.ID != 0 {
		metav1.SetMetaDataAnnotation(meta, AnnotationRunnerID, strconv.FormatInt(f.ID, 10))
	}
	return nil
}
