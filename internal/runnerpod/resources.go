package runnerpod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// bounded are the resources that every container of a runner's pod requests and limits (POD-1). A ResourceQuota on limits refuses pods
// with a container that has none, a LimitRange with minima those that request too little.
var bounded = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// agentDefaults are the requests and limits of the containers that Bullpen adds. They use far less than they request. The CPU limit is well
// above what a poll takes, so that handing a job over is not throttled.
func agentDefaults() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("10m"),
			corev1.ResourceMemory: resource.MustParse("32Mi"),
		},
		Limits: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("500m"),
			corev1.ResourceMemory: resource.MustParse("128Mi"),
		},
	}
}

// agentResources are those of one container that Bullpen adds, as a pool or a runner has them.
func agentResources(given *v1alpha1.ContainerResources) corev1.ResourceRequirements {
	return resourcesOf(agentDefaults(), given)
}

// daemonResources are those of the Docker daemon. Containers of jobs run inside it, so it may use what the runner may.
func daemonResources(runner corev1.ResourceList, given *v1alpha1.ContainerResources) corev1.ResourceRequirements {
	defaults := corev1.ResourceRequirements{Requests: agentDefaults().Requests}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if limit, said := runner[name]; said {
			set(&defaults.Limits, name, limit)
		}
	}
	return resourcesOf(defaults, given)
}

// resourcesOf replaces defaults by what is given. Where only one of a request and its limit is given, the default of the other gives way.
func resourcesOf(defaults corev1.ResourceRequirements, given *v1alpha1.ContainerResources) corev1.ResourceRequirements {
	out := *defaults.DeepCopy()
	if given == nil {
		given = &v1alpha1.ContainerResources{}
	}
	for _, name := range bounded {
		request, requested := given.Requests[name]
		limit, limited := given.Limits[name]
		if requested {
			set(&out.Requests, name, request)
		}
		if limited {
			set(&out.Limits, name, limit)
		}
		least, has := out.Requests[name]
		most, capped := out.Limits[name]
		switch {
		case requested && !capped, has && capped && !limited && most.Cmp(least) < 0:
			set(&out.Limits, name, least)
		case limited && !has, has && capped && !requested && most.Cmp(least) < 0:
			set(&out.Requests, name, most)
		}
	}
	return out
}

// checkResources refuses what the API server would refuse of every pod.
func checkResources(field string, given *v1alpha1.ContainerResources) error {
	if given == nil {
		return nil
	}
	for _, list := range []corev1.ResourceList{given.Requests, given.Limits} {
		for name, size := range list {
			if !slices.Contains(bounded, name) {
				return refuse("%s has %s: only cpu, memory and ephemeral-storage are supported", field, name)
			}
			if size.Sign() < 0 {
				return refuse("%s has a negative %s, %s: remove it", field, name, size.String())
			}
		}
	}
	for name, limit := range given.Limits {
		if request, said := given.Requests[name]; said && request.Cmp(limit) > 0 {
			return refuse("%s requests %s of %s but limits it to %s: raise the limit, or lower the request", field, request.String(), name, limit.String())
		}
	}
	return nil
}

// plainly writes quantities by how much they are, so that equal ones hash equally.
func plainly(given *v1alpha1.ContainerResources) *v1alpha1.ContainerResources {
	if given == nil {
		return nil
	}
	out := given.DeepCopy()
	for _, list := range []corev1.ResourceList{out.Requests, out.Limits} {
		for name, size := range list {
			list[name] = *resource.NewDecimalQuantity(*size.AsDec(), resource.DecimalSI)
		}
	}
	return out
}
