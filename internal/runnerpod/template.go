package runnerpod

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Volumes and directories that the controller makes. A pool's own volumes may not begin with reservedPrefix.
const (
	VolumeShared = "bullpen-shared" // what poller and runner hand over through
	VolumeToken  = "bullpen-token"  // the dispatch token; mounted in the poller alone (NET-3)

	VolumeWork = "bullpen-work" // where jobs work; it goes with the pod

	MountShared = "/bullpen/shared"
	MountWork   = "/bullpen/work"
	MountToken  = "/bullpen/token"

	reservedPrefix    = "bullpen-"
	reservedEnvPrefix = "BULLPEN_"
	tokenFile         = "token"
)

// TokenSeconds is the lifetime of the dispatch token. It is re-read at every poll, and the kubelet renews it long
// before it expires.
const TokenSeconds = 3600

// AnnotationDefaultContainer makes kubectl logs and exec choose the runner.
const AnnotationDefaultContainer = "kubectl.kubernetes.io/default-container"

// DefaultRunnerCommand starts GitHub's own runner where its official image has it. The listener is started directly
// and not through the image's run.sh, so that signals and exit codes are the listener's own.
var DefaultRunnerCommand = []string{"/home/runner/bin/Runner.Listener", "run"}

// DefaultMacRunnerCommand starts GitHub's own runner where the public macOS images for Tart have it: the directory
// actions-runner in the home of their user, admin (cirruslabs/macos-image-templates/scripts/install-actions-runner.sh).
// It is a path in the guest.
var DefaultMacRunnerCommand = []string{"/Users/admin/actions-runner/bin/Runner.Listener", "run"}

func defaultCommand(platform v1alpha1.Platform) []string {
	if platform == v1alpha1.PlatformMacOS {
		return DefaultMacRunnerCommand
	}
	return DefaultRunnerCommand
}

// DefaultAgentCommand is where Bullpen's image has the agent's binary. It must not be in /bullpen: the pod's volumes are mounted
// there.
const DefaultAgentCommand = "/usr/local/bin/bullpen-agent"

// MacAgentCommand is what the init container of a pod for Macs starts. A Mac has one program: its node agent starts itself in place of
// any path that ends in "bullpen", with the subcommand agent. Node agents of earlier releases do the same, so that a controller can be
// upgraded before its Macs.
const MacAgentCommand = "/usr/local/bin/bullpen"

// Options is what every pod of an installation has in common.
type Options struct {
	// DispatchURL is the base URL of the server as pods reach it. Required.
	DispatchURL string
	// MacDispatchURL is that URL as Macs reach it, which have neither the cluster's DNS nor a route to its Services; empty: DispatchURL. It is
	// in the hash of pools of Macs alone, as their DispatchURL.
	MacDispatchURL string `json:"-"`
	// AgentImage is the image that holds the agent's binary. Required.
	AgentImage string
	// AgentCommand is the binary inside AgentImage; the default is DefaultAgentCommand. In one-machine mode it is the host's
	// own. Pods for Macs do not use it.
	AgentCommand string
	// MicroVMClasses are the runtime classes under which a pod may hold a privileged container (NET-7). nil stands for
	// DefaultMicroVMClasses, an empty list for none. They shape no pod, so changing them rolls no pool.
	MicroVMClasses []string `json:"-"`
	// JobContainersKey is the public key that jobs seal requests for containers to (letter.PrivateKey); empty: pools with jobContainers are
	// refused. It is in the hash of such pools alone.
	JobContainersKey string `json:"-"`
	// Egress is how runners connect to GitHub; nil: directly.
	Egress *Egress `json:",omitempty"`
	// Around is what pods take from the cluster as it is now. It is no part of a template, so changing it rolls no pool.
	Around Surroundings `json:"-"`
}

// Validate says what is missing.
func (o Options) Validate() error {
	switch {
	case o.DispatchURL == "":
		return errors.New("no dispatch URL: set the URL at which pods reach the server")
	case o.AgentImage == "":
		return errors.New("no agent image: set the image with bullpen-agent")
	}
	return nil
}

func (o Options) agentCommand() string {
	if o.AgentCommand != "" {
		return o.AgentCommand
	}
	return DefaultAgentCommand
}

// Limits on a runner pod's name.
const (
	suffixLength   = 8
	suffixAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// NewSuffix makes the random end of a runner pod's name: 8 lower-case letters and digits.
func NewSuffix() string {
	raw := make([]byte, suffixLength)
	_, _ = rand.Read(raw) // never fails: see crypto/rand
	for i, b := range raw {
		raw[i] = suffixAlphabet[int(b)%len(suffixAlphabet)]
	}
	return string(raw)
}

// Name of the pod and of its ServiceAccount (POOL-1).
func Name(pool, suffix string) string { return pool + "-" + suffix }

// InvalidTemplateError says why no pod is built from a pool's template. It lasts until the pool is changed.
type InvalidTemplateError struct{ Problem string }

// Error is the sentence for a person.
func (e *InvalidTemplateError) Error() string { return e.Problem }

func refuse(format string, args ...any) error {
	return &InvalidTemplateError{Problem: fmt.Sprintf(format, args...)}
}

// Build makes the pod and the ServiceAccount of one runner. It is pure, reads the pool and keeps no pointer into it.
// The API server has validated the pool already; safety rules are checked again, and a violation is an
// *InvalidTemplateError.
func Build(pool *v1alpha1.RunnerPool, options Options, suffix string) (*corev1.Pod, *corev1.ServiceAccount, error) {
	if err := check(pool, options); err != nil {
		return nil, nil, err
	}
	hash, err := TemplateHash(pool, options)
	if err != nil {
		return nil, nil, err
	}
	meta := objectMeta(pool, Name(pool.Name, suffix))
	account := &corev1.ServiceAccount{
		ObjectMeta:                   meta,
		AutomountServiceAccountToken: ptr.To(false),
	}
	pod := &corev1.Pod{ObjectMeta: *meta.DeepCopy(), Spec: podSpec(pool, options, meta.Name)}
	pod.Labels[LabelTemplateHash] = hash
	pod.Annotations = map[string]string{AnnotationDefaultContainer: ContainerRunner, AnnotationSafeToEvict: "true"} // POOL-9: until it is busy
	addMetadata(&pod.Labels, &pod.Annotations, pool.Spec.Template.Metadata)
	options.Around.fit(pod, account)
	if pool.Spec.Template.JobContainers != nil {
		// Not in the ServiceAccount: the Secret is of this pod, and may hold what a job was given.
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: PullSecret(pod.Name)})
		if err := checkBounded(&pod.Spec); err != nil { // JOB-5
			return nil, nil, err
		}
		if err := checkShm("spec.template.jobContainers", &pod.Spec, pool.Spec.Template.JobContainers); err != nil {
			return nil, nil, err
		}
	}
	return pod, account, nil
}

// check refuses a pool from which no pod may be built.
func check(pool *v1alpha1.RunnerPool, options Options) error {
	template := &pool.Spec.Template
	for _, problem := range []error{
		checkTemplate(template), checkMetadata(template.Metadata), checkPrivileges(pool, options), checkArchitecture(pool), checkMac(pool, options), checkDisk(pool),
		checkResources("spec.template.agentResources", template.AgentResources), checkJobContainers(pool, options), checkBuild(pool, options),
	} {
		if problem != nil {
			return problem
		}
	}
	if template.Dind != nil {
		return checkResources("spec.template.dind.resources", template.Dind.Resources)
	}
	return nil
}

func objectMeta(pool *v1alpha1.RunnerPool, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:       pool.Namespace,
		Name:            name,
		Labels:          map[string]string{LabelRunner: "true", LabelPool: pool.Name},
		OwnerReferences: []metav1.OwnerReference{ownerReference(pool)},
	}
}

// ownerReference does not block the pool's deletion: the pool's own finalizer does (POOL-2). For a reference that blocks, the API server
// looks up the owner's kind in a list that it renews every half minute, and right after the CustomResourceDefinitions are created it would
// refuse every pod (docs/adr/0056).
func ownerReference(pool *v1alpha1.RunnerPool) metav1.OwnerReference {
	ref := metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunnerPool))
	ref.BlockOwnerDeletion = nil
	return *ref
}

// checkTemplate keeps the credentials away from the container that runs other people's code (NET-3).
func checkTemplate(template *v1alpha1.RunnerTemplate) error {
	if template.Image == "" {
		return refuse("spec.template.image is empty: set the runner's image")
	}
	if s := template.SecurityContext; s != nil && s.RunAsUser != nil {
		return refuse("spec.template.securityContext.runAsUser is not supported, because all containers of the pod share files as one user: set spec.template.runAsUser")
	}
	for _, v := range template.Volumes {
		if strings.HasPrefix(v.Name, reservedPrefix) {
			return refuse("volume %q: names that begin with %s are reserved for the controller; choose another", v.Name, reservedPrefix)
		}
		if v.Projected != nil {
			return refuse("volume %q is projected and could hold a ServiceAccount token; use secret, configMap or downwardAPI", v.Name) // NET-3
		}
	}
	for _, m := range template.VolumeMounts {
		if strings.HasPrefix(m.Name, reservedPrefix) {
			return refuse("the mount at %s uses volume %q, which holds the pod's credentials; mount volumes of the template only", m.MountPath, m.Name) // NET-3
		}
		if !slices.ContainsFunc(template.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			return refuse("the mount at %s uses volume %q, which is not in spec.template.volumes: add the volume, or remove the mount", m.MountPath, m.Name)
		}
		for _, ours := range []string{MountShared, MountWork, MountCA} {
			if overlaps(m.MountPath, ours) {
				return refuse("the mount at %s overlaps the pod's own at %s; mount it elsewhere", m.MountPath, ours)
			}
		}
	}
	for _, t := range template.Tolerations {
		if t.TolerationSeconds != nil { // POOL-9
			return refuse("the toleration of %s has tolerationSeconds, after which Kubernetes would delete the runner; remove them", t.Key) // POOL-9
		}
	}
	for _, e := range template.Env {
		if strings.HasPrefix(e.Name, reservedEnvPrefix) {
			return refuse("variable %s: names that begin with %s are reserved for the agent; choose another", e.Name, reservedEnvPrefix)
		}
	}
	return nil
}

func overlaps(a, b string) bool {
	a, b = path.Clean(a)+"/", path.Clean(b)+"/"
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}
