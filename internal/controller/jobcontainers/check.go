package jobcontainers

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/ephemeral"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// limits are how many containers of each role a job may have (JOB-5). Over all of its requests there are MaxTries of each.
var limits = map[jobcontainer.Role]int{jobcontainer.RoleJob: 1, jobcontainer.RoleService: 16, jobcontainer.RoleStep: 32}

// maxUncleared is how many containers of a job may end without having removed their files before it gets no more (JOB-5). Each may have written up
// to the pod's limit.
const maxUncleared = 4

// maxOpenSteps is how many containers of steps may be open at a time. The runner runs one step after the other, but a guard with many files to remove
// ends later than its step. Without this limit a job could have all of its containers first, and have one after the other leave its files.
const maxOpenSteps = 8

// maxSpec is how large a pod may become, in bytes. etcd refuses objects of more than 1.5 MiB, and a kubelet adds statuses: it must always be able to
// report that the runner has ended. lastSpec is for the courier that says so.
const (
	maxSpec  = 900 << 10
	lastSpec = maxSpec + 16<<10
)

// fullText is for the job's log.
const fullText = "The pod of this job cannot describe another container: it would be too large for Kubernetes."

// fits reports whether containers may be added to a pod that becomes no larger than most.
func fits(v ephemeral.View, containers []corev1.EphemeralContainer, most int) bool {
	grown := v.Size
	for i := range containers {
		grown += containers[i].Size()
	}
	return grown <= most
}

// unbounded refuses a pod with a container without a limit, such as one that was injected: the pod has none then, and containers of a job, which
// can have none of their own, could take the whole node (JOB-5).
func unbounded(pod *corev1.Pod) string {
	if name, resource := runnerpod.Unbounded(&pod.Spec); name != "" {
		return fmt.Sprintf("Containers cannot be added to this runner, because its container %s has no limit for %s.", name, resource)
	}
	return ""
}

// check says what is wrong with a request, in a sentence for the job's log; empty: nothing. Images are checked later.
func check(request jobcontainer.Request, v ephemeral.View) string {
	if len(request.Containers) == 0 {
		return "This request names no container."
	}
	if count := v.Uncleared(); count >= maxUncleared {
		return fmt.Sprintf("This job gets no more containers, because %d of its containers have ended without removing their files from the node's disk.", count)
	}
	if open := v.Open(jobcontainer.RoleStep); open >= maxOpenSteps && asksForSteps(request) {
		return fmt.Sprintf("This job has %d containers for steps that have not ended, or not started yet, which is the most that is allowed at a time.", open)
	}
	asked := map[jobcontainer.Role]int{}
	for _, c := range request.Containers {
		limit, known := limits[c.Role]
		if !known {
			return fmt.Sprintf("This request has a container of unknown role %q.", string(c.Role))
		}
		if c.Position != asked[c.Role] {
			return fmt.Sprintf("This request has a container of role %s at position %d, where %d was expected.", c.Role, c.Position, asked[c.Role])
		}
		asked[c.Role]++
		had := v.Count(c.Role)
		if c.Role == jobcontainer.RoleStep && asked[c.Role] > 1 {
			return "This request is for more than one step."
		}
		if asked[c.Role] <= limit && had+asked[c.Role] <= jobcontainer.MaxTries*limit {
			continue
		}
		switch c.Role {
		case jobcontainer.RoleJob:
			return "This job has a job container already."
		case jobcontainer.RoleService:
			return fmt.Sprintf("This job has more than %d services, which is the most that is allowed.", limit)
		default:
			return fmt.Sprintf("This job has started %d containers for steps, which is the most that is allowed.", had)
		}
	}
	return ""
}

func asksForSteps(request jobcontainer.Request) bool {
	return slices.ContainsFunc(request.Containers, func(c jobcontainer.Wanted) bool { return c.Role == jobcontainer.RoleStep })
}
