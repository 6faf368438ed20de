package ephemeral

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Rest is the part of a request that the next courier carries. The zero value is the whole of the next one.
type Rest struct {
	Request string
	From    int
}

// NextCourier makes the courier after the newest of the pod, for a pod to which so many other containers are added with it.
func NextCourier(pod *corev1.Pod, v View, others int, d letter.Delivery, rest Rest) (corev1.EphemeralContainer, error) {
	args := []string{"--limit", strconv.Itoa(letter.Limit(v.All + others + 1))}
	if rest.Request != "" {
		args = append(args, "--request", rest.Request, "--from", strconv.Itoa(rest.From))
	}
	return carrier(pod, courierPrefix+strconv.Itoa(v.Newest().Number+1), args, d)
}

// NextNotice makes a container that brings failures, and carries nothing.
func NextNotice(pod *corev1.Pod, v View, failures []letter.Failure) (corev1.EphemeralContainer, error) {
	number := 1
	if last := len(v.Notices); last > 0 {
		number = v.Notices[last-1].Number + 1
	}
	return carrier(pod, noticePrefix+strconv.Itoa(number), []string{"--deliver-only"}, letter.Delivery{Failures: failures})
}

// carrier starts what the pod's own courier does, with other arguments.
func carrier(pod *corev1.Pod, name string, args []string, d letter.Delivery) (corev1.EphemeralContainer, error) {
	at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == runnerpod.ContainerCourier })
	if at < 0 {
		return corev1.EphemeralContainer{}, fmt.Errorf("making container %s: pod %s has no container %s", name, pod.Name, runnerpod.ContainerCourier)
	}
	delivered, err := d.Arguments()
	if err != nil {
		return corev1.EphemeralContainer{}, fmt.Errorf("making container %s: %w", name, err)
	}
	own := &pod.Spec.Containers[at]
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name:                     name,
		Image:                    own.Image,
		ImagePullPolicy:          corev1.PullIfNotPresent, // the pod's own has started from it on this node
		Command:                  slices.Clone(own.Command[:min(2, len(own.Command))]),
		Args:                     slices.Concat(args, []string{"--"}, delivered),
		VolumeMounts:             runnerpod.CourierMounts(),
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			ReadOnlyRootFilesystem:   ptr.To(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}}, nil
}

// Name is the name that a container of the next request's response gets. No try of an earlier one had it.
func (v View) Name(role jobcontainer.Role, position int) string {
	return name(role, v.Newest().Number+1, position)
}

// JobContainer makes a container of the job for a pod. Of all that is in it, the workflow has chosen the image (JOB-1).
func JobContainer(pod *corev1.Pod, name, image string, profile v1alpha1.SecurityProfile) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name:                     name,
		Image:                    image,
		ImagePullPolicy:          corev1.PullIfNotPresent, // it has a digest
		Command:                  jobcontainer.Command(name),
		VolumeMounts:             runnerpod.JobMounts(pod.Spec.Volumes),
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext:          securityOf(profile),
	}}
}

// securityOf is never privileged and adds no capability. With Baseline the guard is root, and starts each process as the user that the image
// or the workflow names; the pod's own user would otherwise win over the image's.
func securityOf(profile v1alpha1.SecurityProfile) *corev1.SecurityContext {
	s := &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	if profile == v1alpha1.ProfileRestricted {
		s.AllowPrivilegeEscalation = ptr.To(false)
		s.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
		s.RunAsNonRoot = ptr.To(true)
		return s
	}
	s.RunAsUser, s.RunAsNonRoot = ptr.To[int64](0), ptr.To(false)
	return s
}
