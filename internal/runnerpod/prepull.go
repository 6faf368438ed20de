package runnerpod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// DefaultConcurrentPulls is spec.imagePrepull.maxConcurrentPulls of pools that were made without the API server's defaulting.
const DefaultConcurrentPulls = "25%"

// containerPause holds the images of a pre-pull pod in use: a kubelet removes no image of a pod that exists.
const containerPause = "pause"

const (
	prepullSuffix       = "-prepull"
	prepullGraceSeconds = 5
	prepullDisk         = 64 << 20 // the agent's binary
)

// PrepullName is the name of the DaemonSet that pulls a pool's images.
func PrepullName(pool string) string { return pool + prepullSuffix }

// Prepulls reports whether the pool's images are pulled before runners need them. Macs pull images of virtual machines themselves.
func Prepulls(pool *v1alpha1.RunnerPool) bool {
	p := pool.Spec.ImagePrepull
	return p != nil && p.Enabled && pool.Spec.Platform == v1alpha1.PlatformLinux && pool.DeletionTimestamp == nil
}

// Prepull makes the DaemonSet that pulls the images of a pool's pods onto every node on which these can run. class is the RuntimeClass of
// the template; nil for none. Only its node selector and tolerations are used: a pre-pull pod in a microVM would hold the memory of one on
// each node. Prepull is pure, and keeps no pointer into the pool.
func Prepull(pool *v1alpha1.RunnerPool, options Options, class *nodev1.RuntimeClass) (*appsv1.DaemonSet, error) {
	runner, _, err := Build(pool, options, "aaaaaaaa")
	if err != nil {
		return nil, err
	}
	selected := map[string]string{LabelPrepull: pool.Name}
	daemons := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pool.Namespace, Name: PrepullName(pool.Name), Labels: maps.Clone(selected), OwnerReferences: runner.OwnerReferences,
		},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selected},
			Template: prepullPod(pool, options, runner, class),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(concurrentPulls(pool))},
			},
			RevisionHistoryLimit: ptr.To[int32](0), // it is never rolled back
		},
	}
	shape, err := json.Marshal(daemons)
	if err != nil {
		return nil, fmt.Errorf("hashing the DaemonSet of %s: %w", pool.Name, err)
	}
	daemons.Annotations = map[string]string{AnnotationPrepullSpec: shortHash(shape)}
	return daemons, nil
}

func concurrentPulls(pool *v1alpha1.RunnerPool) intstr.IntOrString {
	return ptr.Deref(pool.Spec.ImagePrepull.MaxConcurrentPulls, intstr.FromString(DefaultConcurrentPulls))
}

// prepullPod runs the agent's binary once in each image, which needs neither a shell nor a user of the image. The pod is ready when all of
// them are on the node.
func prepullPod(pool *v1alpha1.RunnerPool, options Options, runner *corev1.Pod, class *nodev1.RuntimeClass) corev1.PodTemplateSpec {
	images, resources := imagesOf(runner), prepullResources(pool)
	container := func(name, image string, command ...string) corev1.Container {
		return corev1.Container{
			Name: name, Image: image, Command: command, Resources: *resources.DeepCopy(), SecurityContext: noPrivileges(), // POD-1, POD-2
			VolumeMounts: []corev1.VolumeMount{sharedMount()},
		}
	}
	spec := corev1.PodSpec{
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](prepullGraceSeconds),
		SecurityContext:               prepullSecurity(&pool.Spec.Template),
		ImagePullSecrets:              sharedPullSecrets(runner),
		PriorityClassName:             runner.Spec.PriorityClassName, // it preempts nothing that a runner of the pool would not
		NodeSelector:                  runner.Spec.NodeSelector,
		Affinity:                      requiredNodes(runner.Spec.Affinity),
		Tolerations:                   runner.Spec.Tolerations,
		Volumes: []corev1.Volume{{Name: VolumeShared, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(prepullDisk, resource.BinarySI)},
		}}},
		InitContainers: []corev1.Container{container(ContainerAgent, options.AgentImage, options.agentCommand(), "install", "--to", agentBinary)},
		Containers:     []corev1.Container{container(containerPause, options.AgentImage, options.agentCommand(), "pause")},
	}
	for i, image := range images {
		if image != options.AgentImage {
			spec.InitContainers = append(spec.InitContainers, container(fmt.Sprintf("image-%d", i), image, agentBinary, "--version"))
		}
	}
	addClassNodes(&spec, class)
	meta := metav1.ObjectMeta{Labels: map[string]string{LabelPrepull: pool.Name, LabelImages: nameImages(images)}}
	addMetadata(&meta.Labels, &meta.Annotations, pool.Spec.Template.Metadata)
	return corev1.PodTemplateSpec{ObjectMeta: meta, Spec: spec}
}

// sharedPullSecrets are those that a runner's pod has in common with others.
func sharedPullSecrets(runner *corev1.Pod) []corev1.LocalObjectReference {
	own := corev1.LocalObjectReference{Name: PullSecret(runner.Name)}
	return slices.DeleteFunc(slices.Clone(runner.Spec.ImagePullSecrets), func(r corev1.LocalObjectReference) bool { return r == own })
}

// Images names the images of a pool's pods: the label LabelImages of pre-pull pods that pull them.
func Images(pool *v1alpha1.RunnerPool, options Options) (string, error) {
	runner, _, err := Build(pool, options, "aaaaaaaa")
	if err != nil {
		return "", err
	}
	return nameImages(imagesOf(runner)), nil
}

func nameImages(images []string) string { return shortHash([]byte(strings.Join(images, "\n"))) }

// imagesOf are the images of a pod, each once, in a stable order.
func imagesOf(pod *corev1.Pod) []string {
	var images []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		images = append(images, c.Image)
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// prepullResources request nothing by default, so that a pre-pull pod takes no runner's room on a node, and preempts none.
func prepullResources(pool *v1alpha1.RunnerPool) corev1.ResourceRequirements {
	resources, share := unreserved(pool.Spec.Template.AgentResources), poolDisk(pool)
	if share.runner.Sign() <= 0 {
		return resources
	}
	const name = corev1.ResourceEphemeralStorage // TEN-6
	if _, said := resources.Requests[name]; !said {
		set(&resources.Requests, name, resource.Quantity{Format: resource.BinarySI})
	}
	if _, said := resources.Limits[name]; !said {
		set(&resources.Limits, name, *resource.NewQuantity(helperDisk, resource.BinarySI))
	}
	return resources
}

// prepullSecurity conforms to restricted, whatever the pool's runners may do (POD-2).
func prepullSecurity(template *v1alpha1.RunnerTemplate) *corev1.PodSecurityContext {
	s := &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: runtimeProfile()}
	if template.UserAssignment == v1alpha1.UserFromCluster {
		return s
	}
	s.RunAsUser = ptr.To(runAsUser(template))
	if *s.RunAsUser == 0 {
		s.RunAsUser = ptr.To[int64](DefaultRunAsUser)
	}
	return s
}

// requiredNodes is what of an affinity decides on which nodes pods can run. Rules about other pods are for runners alone.
func requiredNodes(affinity *corev1.Affinity) *corev1.Affinity {
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.DeepCopy(),
	}}
}

// addClassNodes adds what the API server adds to pods of that RuntimeClass to choose their nodes.
func addClassNodes(spec *corev1.PodSpec, class *nodev1.RuntimeClass) {
	if class == nil || class.Scheduling == nil {
		return
	}
	spec.NodeSelector = under(spec.NodeSelector, class.Scheduling.NodeSelector)
	spec.Tolerations = append(slices.Clone(spec.Tolerations), class.Scheduling.Tolerations...)
}

func shortHash(of []byte) string {
	sum := sha256.Sum256(of)
	return hex.EncodeToString(sum[:8])
}
