package runnerpod

import (
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Where a self-registering runner finds what it registers with: the files of its own Secret.
const (
	VolumeRegistration = "bullpen-registration"
	MountRegistration  = "/bullpen/registration"
)

// Keys of a self-registering runner's Secret, which are files in MountRegistration. An ephemeral one has KeyJIT, a static one
// the rest.
const (
	KeyJIT    = "jitconfig"
	KeyToken  = "token" // blank once GitHub knows the runner
	KeyURL    = "url"
	KeyName   = "name"
	KeyLabels = "labels" // separated by commas
	KeyGroup  = "group"
	// KeyNoDefaultLabels holds true where the runner is registered without self-hosted and the labels of its system.
	KeyNoDefaultLabels = "no-default-labels"
	KeyWorkFolder      = "work-folder"
)

// DefaultWorkFolder is that of v1alpha1.Registration.
const DefaultWorkFolder = "_work"

// ourDomain begins the labels and annotations that only the product gives a pod (NET-4).
const ourDomain = "bullpen.dev/"

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
	// PullSecrets are those of the pod's ServiceAccount. A pod with job containers names a Secret of its own, and so would lack them (POD-4).
	PullSecrets []corev1.LocalObjectReference
	// Facts of its registration.
	Facts RegistrationFacts
	// StatefulSet demands that containers are started again, which the supervisor undoes. Claims are the names of the
	// volumes that it gives the pod.
	StatefulSet bool
	Claims      []string
}

func (r *Registered) ephemeral() bool { return ptr.Deref(r.Spec.Ephemeral, true) }

// showsByExit: the exit of the container idle shows its job. A static runner is idle again after each job, and a StatefulSet starts containers
// again: those have a readiness probe.
func (r *Registered) showsByExit() bool { return r.ephemeral() && !r.StatefulSet }

// workPath is where jobs work, in the container of the runner.
func (r *Registered) workPath() string {
	dir := r.Spec.WorkFolder
	if dir == "" {
		dir = DefaultWorkFolder
	}
	return path.Join(runnerHome, dir)
}

// BuildRegistered makes the pod of one self-registering runner. It is pure, keeps no pointer into what it is given, and is
// idempotent: from a template that is such a pod already it makes the same pod (RUN-5). A template that breaks a safety
// rule is an *InvalidTemplateError.
func BuildRegistered(r Registered, options Options) (*corev1.Pod, error) {
	if err := r.checkPlaces(); err != nil {
		return nil, err
	}
	template := r.Spec.Template.DeepCopy()
	spec := &template.Spec
	runner := named(spec.Containers, ContainerRunner)
	if runner == nil {
		return nil, refuse("template.spec.containers has no container %s, in which jobs run: add it, or rename one of the others", ContainerRunner)
	}
	unwrap(runner)
	if len(runner.Command) == 0 && len(runner.Args) > 0 {
		return nil, refuse("container %s has args without a command, and the image's entrypoint is unknown: set the command too", ContainerRunner)
	}
	if len(runner.Command) == 0 {
		runner.Command = slices.Clone(DefaultRunnerCommand)
	}
	if runner.Image == "" {
		return nil, refuse("container %s has no image: set the runner's image", ContainerRunner)
	}
	if err := r.checkHooks(runner); err != nil {
		return nil, err
	}
	share := registeredDisk(spec, runner) // TEN-6
	added := r.additions(spec, runner, options)
	share.bound(added.first, added.volumes)
	share.bound(added.beside, added.volumes)
	runner = added.strip(spec)
	if err := r.check(spec, options); err != nil {
		return nil, err
	}
	r.wrap(runner)
	added.add(spec, runner)
	share.boundRunner(runner)
	spec.Containers = append(spec.Containers, added.beside...) // the last change: the runner may move
	if err := r.bound(spec); err != nil {
		return nil, err
	}
	r.settle(spec)
	meta, err := r.objectMeta(&template.ObjectMeta)
	if err != nil {
		return nil, err
	}
	return &corev1.Pod{ObjectMeta: meta, Spec: *spec}, nil
}

// objectMeta is the template's, with the product's own labels and annotations, which override the template's.
func (r *Registered) objectMeta(template *metav1.ObjectMeta) (metav1.ObjectMeta, error) {
	theirs := func(key, _ string) bool { return strings.HasPrefix(key, ourDomain) || OwnershipMark(key) } // NET-4, RUN-9
	meta := metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, Labels: template.Labels, Annotations: template.Annotations}
	if r.StatefulSet {
		meta.Name = ""
	} else {
		for i := range r.Owners {
			meta.OwnerReferences = append(meta.OwnerReferences, *r.Owners[i].DeepCopy())
		}
	}
	if meta.Labels == nil {
		meta.Labels = map[string]string{}
	}
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	maps.DeleteFunc(meta.Labels, theirs)
	maps.DeleteFunc(meta.Annotations, theirs)
	if meta.Annotations[AnnotationDefaultContainer] == "" {
		meta.Annotations[AnnotationDefaultContainer] = ContainerRunner
	}
	maps.Copy(meta.Labels, r.Labels)
	maps.Copy(meta.Annotations, r.Annotations)
	meta.Labels[LabelRunner], meta.Labels[LabelSelfRegistering] = "true", "true"
	meta.Labels[LabelTemplateHash] = r.TemplateHash
	meta.Labels[LabelEphemeral] = "false"
	if r.ephemeral() {
		meta.Labels[LabelEphemeral] = "true"
	}
	meta.Finalizers = template.Finalizers
	if !slices.Contains(meta.Finalizers, FinalizerRegistration) {
		meta.Finalizers = append(meta.Finalizers, FinalizerRegistration) // RUN-2
	}
	return meta, r.Facts.annotate(&meta)
}

// settle sets what a template may not choose.
func (r *Registered) settle(spec *corev1.PodSpec) {
	spec.RestartPolicy = corev1.RestartPolicyNever // RUN-7
	if r.StatefulSet {
		spec.RestartPolicy = corev1.RestartPolicyAlways // the API server takes no other; see the supervisor
	}
	spec.AutomountServiceAccountToken = ptr.To(false) // NET-3: the one token there may be is in the runner, see kubeAccess
	spec.TerminationGracePeriodSeconds = ptr.To(ptr.Deref(spec.TerminationGracePeriodSeconds, DefaultGraceSeconds))
	spec.EnableServiceLinks = ptr.To(ptr.Deref(spec.EnableServiceLinks, false))
	for _, stay := range stayTolerations() { // POOL-9
		if !slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, stay) }) {
			spec.Tolerations = append(spec.Tolerations, stay)
		}
	}
	if mode := r.Spec.Kubernetes; mode != nil {
		spec.ServiceAccountName = mode.ServiceAccountName
	}
}

// agentBinary is where the init container puts the agent, and the other containers start it.
const agentBinary = MountShared + "/" + FileAgent

// wrap has the supervisor start the runner. What it starts it with is in files, and never in arguments.
func (r *Registered) wrap(runner *corev1.Container) {
	command := []string{agentBinary, "run"}
	if r.ephemeral() {
		command = append(command, "--jit-file", MountRegistration+"/"+KeyJIT)
	} else {
		command = append(command, "--static", "--registration-dir", MountRegistration)
	}
	command = append(command, "--status-dir", MountShared, "--")
	runner.Command = append(command, runner.Command...)
	if !r.showsByExit() {
		runner.ReadinessProbe = readinessProbe(agentBinary, "ready", "--status-dir", MountShared)
	}
}

// unwrap undoes wrap.
func unwrap(runner *corev1.Container) {
	if end := slices.Index(runner.Command, "--"); end > 1 && slices.Equal(runner.Command[:2], []string{agentBinary, "run"}) {
		runner.Command = slices.Clone(runner.Command[end+1:])
	}
	if p := runner.ReadinessProbe; p != nil && equality.Semantic.DeepEqual(p, readinessProbe(agentBinary, "ready", "--status-dir", MountShared)) {
		runner.ReadinessProbe = nil
	}
}

func named(containers []corev1.Container, name string) *corev1.Container {
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}
