package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Rules are what the runners' namespace asks of its pods. What could not be read is empty.
type Rules struct {
	Enforced string // the Pod Security level; empty for none
	Quotas   []corev1.ResourceQuota
	Ranges   []corev1.LimitRange
}

// The levels of Pod Security.
const (
	levelPrivileged = "privileged"
	levelBaseline   = "baseline"
	levelRestricted = "restricted"
)

// remedies say what to change so that the namespace takes a pod of a pool, one for each rule that the pod does not keep.
func (r Rules) remedies(pod *corev1.Pod) []string {
	var found []string
	if pod == nil {
		return nil
	}
	for i := range r.Ranges {
		for _, item := range r.Ranges[i].Spec.Limits {
			switch item.Type {
			case corev1.LimitTypeContainer:
				found = append(found, containersOutOf(r.Ranges[i].Name, item, pod)...)
			case corev1.LimitTypePod:
				found = append(found, podOutOf(r.Ranges[i].Name, item, pod)...)
			}
		}
	}
	for i := range r.Quotas {
		if short := exhausted(&r.Quotas[i], pod); short != "" {
			found = append(found, short)
		}
	}
	if need := levelOf(pod); r.Enforced == levelRestricted && need != levelRestricted || r.Enforced == levelBaseline && need == levelPrivileged {
		found = append(found, fmt.Sprintf("The namespace enforces the Pod Security level %s, and the pool's pods need %s: remove the settings that need it from spec.template "+
			"(securityContext, runAsUser 0, dind, build), or set the namespace's label pod-security.kubernetes.io/enforce to %s.", r.Enforced, need, need))
	}
	return found
}

// containersOutOf says which containers are outside of a limit range, and by which field of the pool they come into it.
func containersOutOf(name string, item corev1.LimitRangeItem, pod *corev1.Pod) []string {
	var found []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, kind := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			request, limit := c.Resources.Requests[kind], c.Resources.Limits[kind]
			if least, bounded := item.Min[kind]; bounded && request.Cmp(least) < 0 {
				found = append(found, fmt.Sprintf("LimitRange %s requires requests of at least %s of %s, and container %s requests %s: raise %s.",
					name, least.String(), kind, c.Name, request.String(), fieldOf(c.Name)))
			}
			if most, bounded := item.Max[kind]; bounded && limit.Cmp(most) > 0 {
				found = append(found, fmt.Sprintf("LimitRange %s allows limits of at most %s of %s, and container %s has %s: lower %s, or raise the LimitRange.",
					name, most.String(), kind, c.Name, limit.String(), fieldOf(c.Name)))
			}
			if ratio, bounded := item.MaxLimitRequestRatio[kind]; bounded && beyond(limit, request, ratio) {
				found = append(found, fmt.Sprintf("LimitRange %s allows limits of %s at most %s times the request, and container %s requests %s and is limited to %s: set both in %s.",
					name, kind, ratio.String(), c.Name, request.String(), limit.String(), fieldOf(c.Name)))
			}
		}
	}
	return found
}

// podOutOf says in what a whole pod is outside of a limit range.
func podOutOf(name string, item corev1.LimitRangeItem, pod *corev1.Pod) []string {
	var found []string
	for _, kind := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		request, limit := takes(pod, "requests."+kind), takes(pod, "limits."+kind)
		if least, bounded := item.Min[kind]; bounded && request.Cmp(least) < 0 {
			found = append(found, fmt.Sprintf("LimitRange %s requires pods that request at least %s of %s, and a runner requests %s: raise spec.resources of the pool.",
				name, least.String(), kind, request.String()))
		}
		if most, bounded := item.Max[kind]; bounded && limit.Cmp(most) > 0 {
			found = append(found, fmt.Sprintf("LimitRange %s allows pods that are limited to at most %s of %s, and a runner has %s: lower spec.resources or "+
				"spec.template.agentResources of the pool, or raise the LimitRange.", name, most.String(), kind, limit.String()))
		}
	}
	return found
}

func beyond(limit, request, ratio resource.Quantity) bool {
	return request.Sign() > 0 && limit.AsApproximateFloat64() > ratio.AsApproximateFloat64()*request.AsApproximateFloat64()
}

// fieldOf names the field by which a pool chooses the resources of a container.
func fieldOf(container string) string {
	switch container {
	case runnerpod.ContainerRunner:
		return "spec.resources of the pool"
	case runnerpod.ContainerDind:
		return "spec.template.dind.resources of the pool"
	case runnerpod.ContainerBuildKit:
		return "spec.template.buildKit.resources of the pool"
	default:
		return "spec.template.agentResources of the pool"
	}
}

// exhausted says what a quota has too little left of for one more pod; empty for nothing.
func exhausted(quota *corev1.ResourceQuota, pod *corev1.Pod) string {
	var short []string
	for kind, hard := range quota.Status.Hard {
		left := hard.DeepCopy()
		left.Sub(quota.Status.Used[kind])
		if need := takes(pod, kind); need.Cmp(left) > 0 {
			short = append(short, fmt.Sprintf("%s of %s, of which a runner takes %s", left.String(), kind, need.String()))
		}
	}
	if len(short) == 0 {
		return ""
	}
	slices.Sort(short)
	return fmt.Sprintf("ResourceQuota %s has left: %s. Raise it, or lower spec.replicas or spec.resources of the pools.", quota.Name, strings.Join(short, "; "))
}

// takes is how much of a quota's resource one pod takes.
func takes(pod *corev1.Pod, kind corev1.ResourceName) resource.Quantity {
	name, limited := strings.CutPrefix(string(kind), "limits.")
	if !limited {
		name = strings.TrimPrefix(string(kind), "requests.")
	}
	switch corev1.ResourceName(name) {
	case corev1.ResourcePods, "count/pods":
		return *resource.NewQuantity(1, resource.DecimalSI)
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
	default:
		return resource.Quantity{}
	}
	of := func(c corev1.Container) resource.Quantity {
		if limited {
			return c.Resources.Limits[corev1.ResourceName(name)]
		}
		return c.Resources.Requests[corev1.ResourceName(name)]
	}
	var sum, most resource.Quantity
	for _, c := range pod.Spec.Containers {
		sum.Add(of(c))
	}
	for _, c := range pod.Spec.InitContainers {
		size := of(c)
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			sum.Add(size)
		} else if size.Cmp(most) > 0 {
			most = size
		}
	}
	if most.Cmp(sum) > 0 {
		return most
	}
	return sum
}

// levelOf is the Pod Security level that a pod of a pool needs, as far as a pool can choose it.
func levelOf(pod *corev1.Pod) string {
	of := ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{})
	level := levelRestricted
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			return levelPrivileged
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		own := ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
		capabilities := ptr.Deref(own.Capabilities, corev1.Capabilities{})
		profile := own.SeccompProfile
		if profile == nil {
			profile = of.SeccompProfile
		}
		user := own.RunAsUser
		if user == nil {
			user = of.RunAsUser
		}
		confined := profile != nil && profile.Type != corev1.SeccompProfileTypeUnconfined
		switch {
		case ptr.Deref(own.Privileged, false), profile != nil && !confined:
			return levelPrivileged
		case slices.ContainsFunc(capabilities.Add, func(name corev1.Capability) bool { return !runnerpod.Harmless(name) }):
			return levelPrivileged
		case !confined, ptr.Deref(own.AllowPrivilegeEscalation, true), ptr.Deref(user, 1) == 0,
			!ptr.Deref(own.RunAsNonRoot, ptr.Deref(of.RunAsNonRoot, false)),
			!slices.Contains(capabilities.Drop, "ALL"),
			slices.ContainsFunc(capabilities.Add, func(name corev1.Capability) bool { return name != "NET_BIND_SERVICE" }):
			level = levelBaseline
		}
	}
	return level
}

// foreign are the containers of a pool's pod that Bullpen has not put there.
func foreign(pod *corev1.Pod) []string {
	known := []string{
		runnerpod.ContainerAgent, runnerpod.ContainerExternals, runnerpod.ContainerDind,
		runnerpod.ContainerPoller, runnerpod.ContainerRunner, runnerpod.ContainerIdle, runnerpod.ContainerCourier, runnerpod.ContainerBuildKit,
	}
	var names []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if !slices.Contains(known, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}

// examineSurroundings reports what a pool's pods lack in the cluster, or get from it by default.
func examineSurroundings(r *Report, c Cluster) {
	for _, p := range c.Pools {
		if len(p.MissingSecrets) > 0 {
			r.found(Finding{
				Code: "pull-secret-missing", Severity: SeverityError, Subject: p.Name,
				Sentence: "The pods of pool " + p.Name + " name pull secrets that are not in " + c.RunnerNamespace + ": " + some(p.MissingSecrets) + ".",
				Remedy: "Create them (`kubectl -n " + c.RunnerNamespace + " create secret docker-registry NAME …`), or remove them from spec.template.imagePullSecrets " +
					"and from the ServiceAccount default.",
			})
		}
		if p.Architecture != "" && c.NodesRead && len(c.Architectures) > 0 && !slices.Contains(c.Architectures, p.Architecture) {
			f := Finding{
				Code: "architecture-missing", Severity: SeverityWarning, Subject: p.Name,
				Sentence: "The pool " + p.Name + " needs nodes of architecture " + p.Architecture + ", and the cluster has only " + some(c.Architectures) + ".",
				Remedy:   "Set spec.architecture to one that the nodes and the image have, or add such nodes. A cluster autoscaler may add them on demand.",
			}
			if p.WantsMore {
				f.Severity = SeverityError
			}
			r.found(f)
		}
		if len(p.Injected) > 0 {
			r.found(Finding{
				Code: "sidecar-injected", Severity: SeverityWarning, Subject: p.Name,
				Sentence: "Something adds containers to the pods of pool " + p.Name + ": " + some(p.Injected) + ". They use CPU, memory and start-up time of each runner, and a mesh's proxy carries the job's traffic.",
				Remedy: "Opt out by a label or an annotation in spec.template.metadata, such as the label sidecar.istio.io/inject: \"false\" or the annotation linkerd.io/inject: disabled. " +
					"A runner's pod is removed after its job, with all its containers.",
			})
		}
	}
}
