package runnerpod

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RegistrationFacts say where the runner of a pod is registered, and with what: everything needed to unregister it, even when only the pod
// is left. They are written on the pod, except its Name and ID, which have annotations of their own.
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
	// TimeoutSeconds is RunnerSpec's registrationTimeout; 0 for the default.
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
}

// Annotations are the facts as a pod and a Secret have them.
func (f RegistrationFacts) Annotations() (map[string]string, error) {
	var meta metav1.ObjectMeta
	err := f.annotate(&meta)
	return meta.Annotations, err
}

// RegistrationOf reads the facts of a pod or a Secret. It fails where they are missing or broken.
func RegistrationOf(object metav1.Object) (RegistrationFacts, error) {
	var facts RegistrationFacts
	annotations := object.GetAnnotations()
	if err := json.Unmarshal([]byte(annotations[AnnotationRegistration]), &facts); err != nil {
		return RegistrationFacts{}, fmt.Errorf("reading where the runner of %s is registered: %w", object.GetName(), err)
	}
	facts.Name = annotations[AnnotationRunnerName]
	facts.ID, _ = strconv.ParseInt(annotations[AnnotationRunnerID], 10, 64)
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
