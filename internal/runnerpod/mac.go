package runnerpod

import (
	"cmp"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// darwin is what the label kubernetes.io/os says of a Mac.
const darwin = "darwin"

// checkMac refuses what a pool of platform macos cannot have. Its runners are virtual machines on Macs: there is no container
// runtime, and a virtual machine shares with its host nothing but what the agent needs.
func checkMac(pool *v1alpha1.RunnerPool, options Options) error {
	if pool.Spec.Platform != v1alpha1.PlatformMacOS {
		return nil
	}
	template := &pool.Spec.Template
	switch {
	case template.RuntimeClassName != nil:
		return refuse("spec.template.runtimeClassName is for platform linux, a macOS runner is a virtual machine already: remove it")
	case len(template.Volumes) > 0 || len(template.VolumeMounts) > 0:
		return refuse("spec.template.volumes is for platform linux, a macOS virtual machine shares no directories of its host with jobs: remove volumes and volumeMounts, and add the files that jobs need to the image")
	case template.NodeSelector[corev1.LabelOSStable] != "" && template.NodeSelector[corev1.LabelOSStable] != darwin:
		return refuse("spec.template.nodeSelector has %s=%s, but a pool with platform macos needs Macs: remove it", corev1.LabelOSStable, template.NodeSelector[corev1.LabelOSStable])
	case pool.Spec.Resources.CPU.MilliValue()%1000 != 0:
		return refuse("spec.resources.cpu is %s, but a macOS virtual machine has whole CPUs: use a whole number, such as 4", pool.Spec.Resources.CPU.String())
	case options.MacDispatchURL == "" && inClusterOnly(options.DispatchURL):
		return refuse("Macs cannot reach the server at %s, because they do not use the cluster's DNS: set the chart's value macHosts.dispatchURL (--mac-dispatch-url of the controller) to the server's URL for Macs", options.DispatchURL)
	}
	return nil
}

// on are the options of pods of one platform.
func (o Options) on(platform v1alpha1.Platform) Options {
	if platform == v1alpha1.PlatformMacOS {
		o.DispatchURL = cmp.Or(o.MacDispatchURL, o.DispatchURL)
	}
	return o
}

// inClusterOnly reports whether the host of a URL is a Service's name, which only the cluster's DNS resolves. The poller of such a pod would hold
// one of a Mac's two slots, and never ask for a job.
func inClusterOnly(dispatchURL string) bool {
	at, err := url.Parse(dispatchURL)
	if err != nil {
		return false
	}
	host := strings.TrimSuffix(strings.ToLower(at.Hostname()), ".")
	return strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".svc.cluster.local")
}

// toMac makes the pod one for Macs. The containers agent and poller are processes of the Mac, of the node agent's user; the
// container runner is the virtual machine, and takes one of the slots that Apple's licence grants (NODE-5).
//
// A job is shown by the readiness of the container runner. The node agent asks for it, costs little, and reports no failure as an Event.
//
// Settings that have no effect there are left out, so that no user relies on them: users, seccomp, capabilities and
// read-only file systems. The helpers request no CPU and no memory of the node's, unless the pool says so: a runner usually
// gets half of a Mac, and two must fit.
func toMac(spec *corev1.PodSpec, given *v1alpha1.ContainerResources) {
	if spec.NodeSelector == nil {
		spec.NodeSelector = map[string]string{}
	}
	spec.NodeSelector[corev1.LabelOSStable] = darwin
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: TaintMacOS, Operator: corev1.TolerationOpExists})
	spec.SecurityContext = nil
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c := &list[i]
			c.SecurityContext = nil
			macAgent(c)
			if c.Name != ContainerRunner {
				c.Resources = unreserved(given) // POD-1
				continue
			}
			c.ReadinessProbe = readinessProbe(c.Command[0], "agent", "ready") // EXCL-4
			one := *resource.NewQuantity(1, resource.DecimalSI)
			c.Resources.Requests[ResourceMacOSVM], c.Resources.Limits[ResourceMacOSVM] = one, one
		}
	}
}

// unreserved are the resources of a helper that takes no room from runners: it requests nothing unless the pool says so. A request of nothing
// must be said, or the API server takes the limit for it.
func unreserved(given *v1alpha1.ContainerResources) corev1.ResourceRequirements {
	defaults := agentDefaults()
	for name := range defaults.Requests {
		defaults.Requests[name] = resource.Quantity{Format: resource.DecimalSI}
	}
	return resourcesOf(defaults, given)
}

// macAgent has a container start the agent that a Mac has: the subcommand agent of its one program, which the init container puts
// where the node agent looks for it in the guest.
func macAgent(c *corev1.Container) {
	const binary = MountShared + "/" + FileMacAgent
	if c.Name == ContainerAgent {
		c.Command = []string{MacAgentCommand, "agent", "install", "--to", binary}
		return
	}
	c.Command = append([]string{binary, "agent"}, c.Command[1:]...)
}
