package jobcontainers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

func TestCheck_JOB5_AJobHasLimits(t *testing.T) {
	wanted := func(role jobcontainer.Role, count int) (list []jobcontainer.Wanted) {
		for i := range count {
			list = append(list, jobcontainer.Wanted{Role: role, Position: i, Image: "x"})
		}
		return list
	}
	f := newFixture(t)
	full := append(wanted(jobcontainer.RoleJob, 1), wanted(jobcontainer.RoleService, 16)...)
	require.Empty(t, check(jobcontainer.Request{Containers: full}, f.view()))
	for says, containers := range map[string][]jobcontainer.Wanted{
		"names no container":                nil,
		"more than 16 services":             wanted(jobcontainer.RoleService, 17),
		"a job container already":           append(wanted(jobcontainer.RoleJob, 1), jobcontainer.Wanted{Role: jobcontainer.RoleJob, Position: 1}),
		"more than one step":                wanted(jobcontainer.RoleStep, 2),
		`unknown role "root"`:               {{Role: "root"}},
		"at position 1, where 0 was":        {{Role: jobcontainer.RoleService, Position: 1}},
		"at position 0, where 1 was":        {{Role: jobcontainer.RoleService}, {Role: jobcontainer.RoleService}},
		"at position -1, where 0 was expec": {{Role: jobcontainer.RoleStep, Position: -1}},
	} {
		require.Contains(t, check(jobcontainer.Request{Containers: containers}, f.view()), says)
	}
	for range jobcontainer.MaxTries {
		require.Empty(t, check(jobcontainer.Request{Containers: full}, f.view()), "their start may be interrupted")
		f.add(grant(f.pod, f.view(), jobcontainer.Request{ID: "r-1", Containers: full}, resolved(jobcontainer.Request{Containers: full}), ""))
	}
	require.Contains(t, check(jobcontainer.Request{Containers: wanted(jobcontainer.RoleJob, 1)}, f.view()), "already")
	require.Contains(t, check(jobcontainer.Request{Containers: wanted(jobcontainer.RoleService, 1)}, f.view()), "16 services")
	require.Empty(t, check(jobcontainer.Request{Containers: wanted(jobcontainer.RoleStep, 1)}, f.view()))
}

// Kubernetes counts the files of containers while they run: a job that had all of its containers first could have each leave its files.
func TestCheck_JOB5_StepsFollowOneAnother(t *testing.T) {
	f := newFixture(t)
	one := jobcontainer.Request{Containers: []jobcontainer.Wanted{{Role: jobcontainer.RoleStep, Image: "x"}}}
	add := func() string {
		f.add(grant(f.pod, f.view(), one, resolved(one), ""))
		containers := f.view().Containers
		return containers[len(containers)-1].Name
	}
	var last string
	for range maxOpenSteps {
		require.Empty(t, check(one, f.view()))
		last = add()
	}
	require.Contains(t, check(one, f.view()), "8 containers for steps that have not ended")
	f.state(last, running)
	require.NotEmpty(t, check(one, f.view()))
	require.Empty(t, check(oneServed, f.view()), "services are not steps")
	f.unstarted(last)
	require.Empty(t, check(one, f.view()), "it is never started")
	f.state(last, exited(0, ""))
	for had := maxOpenSteps; had < jobcontainer.MaxTries*limits[jobcontainer.RoleStep]; had++ {
		require.Empty(t, check(one, f.view()))
		f.state(add(), exited(0, ""))
	}
	require.Contains(t, check(one, f.view()), "has started 96 containers for steps")
}

// Kubernetes does not count the files of containers that have exited.
func TestCheck_JOB5_FilesThatAreLeftAreCounted(t *testing.T) {
	f := newFixture(t)
	one := jobcontainer.Request{Containers: []jobcontainer.Wanted{{Role: jobcontainer.RoleStep, Image: "x"}}}
	began := metav1.NewTime(time.Unix(1, 0))
	for _, ended := range []corev1.ContainerStateTerminated{
		{ExitCode: 137, Reason: "OOMKilled", StartedAt: began},
		{ExitCode: 128, Reason: "StartError", StartedAt: metav1.NewTime(time.Unix(0, 0))}, // containerd: it never ran
		{ExitCode: 1, Reason: "Error", StartedAt: began},
		{ExitCode: 0, Reason: "Completed", StartedAt: began},
		{ExitCode: 137, Reason: "ContainerStatusUnknown"},                           // the runtime does not have it any more
		{ExitCode: jobcontainer.ExitRunnerEnded, Reason: "Error", StartedAt: began}, // but the runner has not
		{ExitCode: 2, Reason: "Error", StartedAt: began},
	} {
		require.Empty(t, check(one, f.view()))
		f.add(grant(f.pod, f.view(), one, resolved(one), ""))
		containers := f.view().Containers
		f.pod.Status.EphemeralContainerStatuses = append(f.pod.Status.EphemeralContainerStatuses, corev1.ContainerStatus{
			Name: containers[len(containers)-1].Name, State: corev1.ContainerState{Terminated: &ended},
		})
	}
	require.Contains(t, check(one, f.view()), "4 of its containers have ended without removing their files")
}

// A container of a job has no limit of its own: the pod must have one, and has it only if all of its containers do.
func TestUnbounded_JOB5_FindsAnInjectedContainer(t *testing.T) {
	f := newFixture(t)
	require.Empty(t, unbounded(f.pod))
	f.pod.Spec.InitContainers = append(f.pod.Spec.InitContainers, corev1.Container{Name: "istio-init"})
	require.Contains(t, unbounded(f.pod), "istio-init has no limit for cpu")
	f.pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}}
	require.Contains(t, unbounded(f.pod), "istio-init has no limit for memory")
	f.pod.Spec.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("17Gi")
	require.Empty(t, unbounded(f.pod))
}
