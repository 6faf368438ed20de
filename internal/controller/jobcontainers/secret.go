package jobcontainers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// youngPod is the age up to which a pod gets its Secret in advance. An older one gets it with its first credentials.
const youngPod = 5 * time.Minute

// noCredentials is the content of a pull Secret that was not filled.
const noCredentials = `{"auths":{}}`

// pullSecrets makes and fills the Secrets that kubelets pull the images of jobs with. It reads none.
type pullSecrets struct {
	client client.Client
	owner  string // of the fields that are applied
}

// begin makes an empty one for a new pod: a kubelet warns in an Event of each that is missing.
func (p *pullSecrets) begin(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	if pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil || now.Sub(pod.CreationTimestamp.Time) > youngPod {
		return nil
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: runnerpod.PullSecretOf(pod), Labels: map[string]string{runnerpod.LabelRunner: "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(noCredentials)},
	}
	err := p.client.Create(ctx, secret)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the pull Secret of pod %s: %w", pod.Name, err)
	}
	return nil
}

// fill writes the credentials of a request, before the containers that need them are added. They replace those of earlier requests, whose
// images are on the node. A request without any leaves the Secret as it is.
func (p *pullSecrets) fill(ctx context.Context, pod *corev1.Pod, request jobcontainer.Request) error {
	var pulls []image.Pull
	some := false
	for _, c := range request.Containers {
		pulls = append(pulls, image.Pull{Image: c.Image, Credentials: c.Credentials})
		some = some || c.Credentials != nil
	}
	if !some {
		return nil
	}
	config, err := image.DockerConfigJSON(pulls)
	if err != nil {
		return fmt.Errorf("writing the pull Secret of pod %s: %w", pod.Name, err)
	}
	secret := applycorev1.Secret(runnerpod.PullSecretOf(pod), pod.Namespace).
		WithLabels(map[string]string{runnerpod.LabelRunner: "true"}).
		WithOwnerReferences(applymetav1.OwnerReference().WithAPIVersion("v1").WithKind("Pod").WithName(pod.Name).WithUID(pod.UID)).
		WithType(corev1.SecretTypeDockerConfigJson).
		WithData(map[string][]byte{corev1.DockerConfigJsonKey: config})
	if err := p.client.Apply(ctx, secret, client.FieldOwner(p.owner), client.ForceOwnership); err != nil {
		return fmt.Errorf("writing the pull Secret of pod %s: %w", pod.Name, withoutContent(err))
	}
	return nil
}

// withoutContent keeps the kind of an error of the API server, whose text may repeat what was sent (JOB-3).
func withoutContent(err error) error {
	return fmt.Errorf("the API server refused it: %s", apierrors.ReasonForError(err))
}
