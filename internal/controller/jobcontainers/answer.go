package jobcontainers

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/ephemeral"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// addition is what one patch adds to a pod.
type addition struct {
	response   jobcontainer.Response
	containers []corev1.EphemeralContainer // the next courier is the first: a kubelet starts them in order, and pulls before it goes on
}

// auditRecord says, as attributes of a line in the log, for whom which images were added: Events are gone after an hour, and the pod with its job.
// Of the request itself nothing is repeated but its id, because its text is a job's.
func (a addition) auditRecord(pod *corev1.Pod) []any {
	var images []string
	for _, c := range a.response.Containers {
		images = append(images, c.Name+"="+c.Image)
	}
	return []any{
		"namespace", pod.Namespace, "pod", pod.Name, "podUID", string(pod.UID), "pool", pod.Labels[runnerpod.LabelPool], "account", pod.Labels[runnerpod.LabelOwner],
		"request", a.response.ID, "images", images,
	}
}

// grant adds all of a request's containers, or, if that does not fit into a pod, none of them.
func grant(pod *corev1.Pod, v ephemeral.View, request jobcontainer.Request, images []image.Resolved, profile v1alpha1.SecurityProfile) (addition, error) {
	a := addition{response: jobcontainer.Response{ID: request.ID}}
	for i, wanted := range request.Containers {
		name := v.Name(wanted.Role, wanted.Position)
		a.response.Containers = append(a.response.Containers, jobcontainer.Granted{
			Role: wanted.Role, Position: wanted.Position, Name: name, Image: images[i].Reference, Config: images[i].Config,
		})
		a.containers = append(a.containers, ephemeral.JobContainer(pod, name, images[i].Reference, profile))
	}
	courier, err := ephemeral.NextCourier(pod, v, len(a.containers), letter.Delivery{Responses: []jobcontainer.Response{a.response}}, ephemeral.Rest{})
	if large := (*letter.TooLargeError)(nil); errors.As(err, &large) {
		return decline(pod, v, request.ID, fmt.Sprintf("What the images of this job say about themselves is too long: %s. Use fewer services at once.", large))
	}
	if err != nil {
		return addition{}, err
	}
	a.containers = slices.Insert(a.containers, 0, courier)
	if !fits(v, a.containers, maxSpec) { // JOB-5
		return decline(pod, v, request.ID, fullText)
	}
	return a, nil
}

// decline refuses a request.
func decline(pod *corev1.Pod, v ephemeral.View, id, sentence string) (addition, error) {
	return deliver(pod, v, jobcontainer.Response{ID: id, Refusal: sentence})
}

// deliver adds a courier alone.
func deliver(pod *corev1.Pod, v ephemeral.View, response jobcontainer.Response) (addition, error) {
	courier, err := ephemeral.NextCourier(pod, v, 0, letter.Delivery{Responses: []jobcontainer.Response{response}}, ephemeral.Rest{})
	if err != nil {
		return addition{}, err
	}
	return addition{response: response, containers: []corev1.EphemeralContainer{courier}}, nil
}

// repeat adds a courier that brings what the newest brings, which may not have arrived, and carries the next request.
func repeat(pod *corev1.Pod, v ephemeral.View) (addition, error) {
	courier, err := ephemeral.NextCourier(pod, v, 0, v.Newest().Delivery(), ephemeral.Rest{})
	if err != nil {
		return addition{}, err
	}
	return addition{containers: []corev1.EphemeralContainer{courier}}, nil
}

// carry adds a courier without a response: for the rest of a request, for the next one, or to close the volume.
func carry(pod *corev1.Pod, v ephemeral.View, rest ephemeral.Rest, closing string) (addition, error) {
	courier, err := ephemeral.NextCourier(pod, v, 0, letter.Delivery{Closed: closing}, rest)
	if err != nil {
		return addition{}, err
	}
	return addition{containers: []corev1.EphemeralContainer{courier}}, nil
}
