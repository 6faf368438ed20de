package runnerpod

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

func allContainers(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// quantity is a request or a limit of a container.
func quantity(t *testing.T, pod *corev1.Pod, name, of string, kind corev1.ResourceName) *resource.Quantity {
	t.Helper()
	c := container(t, pod, name)
	lists := map[string]corev1.ResourceList{"requests": c.Resources.Requests, "limits": c.Resources.Limits}
	size := lists[of][kind]
	return &size
}

// requireLimited fails if a quota on limits, or a LimitRange with small minima, would refuse a pod.
func requireLimited(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	for _, c := range allContainers(pod) {
		for _, kind := range bounded {
			request, requested := c.Resources.Requests[kind]
			limit, limited := c.Resources.Limits[kind]
			require.True(t, requested && limited, "%s: container %s: %s", name, c.Name, kind)
			require.LessOrEqual(t, request.Cmp(limit), 0, "%s: container %s requests more %s than its limit", name, c.Name, kind)
		}
		require.GreaterOrEqual(t, c.Resources.Requests.Cpu().MilliValue(), int64(10), "%s: %s", name, c.Name)
		require.GreaterOrEqual(t, c.Resources.Requests.Memory().Value(), int64(32<<20), "%s: %s", name, c.Name)
	}
}

func TestBuild_POD1_R6_EveryContainerHasRequestsAndLimits(t *testing.T) {
	small := testPool()
	small.Spec.Template.AgentResources = &v1alpha1.ContainerResources{
		Requests: list("cpu", "100m", "memory", "64Mi"), Limits: list("cpu", "200m", "ephemeral-storage", "256Mi"),
	}
	daemon := dockerPool()
	daemon.Spec.Template.Dind.Resources = &v1alpha1.ContainerResources{Limits: list("memory", "8Gi")}
	for name, pool := range map[string]*v1alpha1.RunnerPool{
		"the default": testPool(), "as it says": small, "with a daemon": dockerPool(), "with a daemon as it says": daemon,
	} {
		pod, _, err := Build(pool, testOptions, "abcd1234")
		require.NoError(t, err, name)
		requireLimited(t, name, pod)
	}
	pod, _, err := Build(small, testOptions, "abcd1234")
	require.NoError(t, err)
	for _, c := range []string{ContainerAgent, ContainerPoller, ContainerIdle} {
		got := container(t, pod, c).Resources
		require.Equal(t, "100m", got.Requests.Cpu().String(), c)
		require.Equal(t, "200m", got.Limits.Cpu().String(), c)
		require.Equal(t, "128Mi", got.Limits.Memory().String(), c)
		require.Equal(t, "256Mi", got.Requests.StorageEphemeral().String(), c)
	}
	pod, _, err = Build(daemon, testOptions, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, "8Gi", quantity(t, pod, ContainerDind, "limits", "memory").String())
	require.Equal(t, "4", quantity(t, pod, ContainerDind, "limits", "cpu").String(), "the runner's")
}

func TestBuild_POD1_R6_AMacsHelpersRequestNothingAndAreLimited(t *testing.T) {
	pod, _, err := Build(macPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	for _, c := range allContainers(pod) {
		for _, kind := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			require.Contains(t, c.Resources.Requests, kind, c.Name)
			require.Contains(t, c.Resources.Limits, kind, c.Name)
		}
	}
	require.Zero(t, quantity(t, pod, ContainerPoller, "requests", "cpu").Sign())
	pool := macPool()
	pool.Spec.Template.AgentResources = &v1alpha1.ContainerResources{Requests: list("cpu", "50m")}
	pod, _, err = Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, "50m", quantity(t, pod, ContainerPoller, "requests", "cpu").String())
}

func TestBuildRegistered_POD1_R6_AddedContainersAreLimited(t *testing.T) {
	for mode, spec := range map[v1alpha1.ContainerMode]v1alpha1.RunnerSpec{
		v1alpha1.ContainerModeNone: {}, v1alpha1.ContainerModeDind: {ContainerMode: v1alpha1.ContainerModeDind, Dind: &v1alpha1.Dind{}},
	} {
		spec.Registration = v1alpha1.Registration{Organization: "acme"}
		spec.Template.Spec.RuntimeClassName = ptr.To("kata")
		spec.Template.Spec.Containers = []corev1.Container{{
			Name: ContainerRunner, Image: "runner:1",
			Resources: corev1.ResourceRequirements{Requests: list("cpu", "1", "memory", "1Gi"), Limits: list("cpu", "1", "memory", "1Gi")},
		}}
		r := Registered{Namespace: "n", Name: "r", Secret: "s", Spec: &spec, Facts: RegistrationFacts{Name: "r"}}
		pod, err := BuildRegistered(r, testOptions)
		require.NoError(t, err, mode)
		requireLimited(t, string(mode), pod)
		spec.AgentResources = &v1alpha1.ContainerResources{Limits: list("cpu", "2")}
		pod, err = BuildRegistered(r, testOptions)
		require.NoError(t, err, mode)
		require.Equal(t, "2", quantity(t, pod, ContainerAgent, "limits", "cpu").String())
	}
}

// For every pool, a request is never above its limit unless the pool sets both.
func TestResourcesOf_POD1_ARequestIsWithinItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := func(label string) corev1.ResourceList {
			out := corev1.ResourceList{}
			for _, kind := range bounded {
				if rapid.Bool().Draw(t, label+string(kind)) {
					out[kind] = *resource.NewMilliQuantity(rapid.Int64Range(0, 1<<40).Draw(t, label), resource.DecimalSI)
				}
			}
			return out
		}
		given := &v1alpha1.ContainerResources{Requests: some("requests"), Limits: some("limits")}
		if checkResources("field", given) != nil {
			return
		}
		got := resourcesOf(agentDefaults(), given)
		for _, kind := range bounded {
			request, requested := got.Requests[kind]
			limit, limited := got.Limits[kind]
			if requested != limited {
				t.Fatalf("%s has a request (%t) or a limit (%t) only", kind, requested, limited)
			}
			if request.Cmp(limit) > 0 {
				t.Fatalf("%s requests %s and is limited to %s", kind, request.String(), limit.String())
			}
			if want, said := given.Requests[kind]; said && want.Cmp(request) != 0 {
				t.Fatalf("%s requests %s, and %s was said", kind, request.String(), want.String())
			}
			if want, said := given.Limits[kind]; said && want.Cmp(limit) != 0 {
				t.Fatalf("%s is limited to %s, and %s was said", kind, limit.String(), want.String())
			}
		}
	})
}

// violations are what keeps a pod from the Pod Security level restricted, by the words of its definition.
func violations(pod *corev1.Pod) []string {
	var found []string
	of := ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{})
	for _, c := range allContainers(pod) {
		own := ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
		profile := own.SeccompProfile
		if profile == nil {
			profile = of.SeccompProfile
		}
		user := own.RunAsUser
		if user == nil {
			user = of.RunAsUser
		}
		for what, wrong := range map[string]bool{
			"privileged":               ptr.Deref(own.Privileged, false),
			"allowPrivilegeEscalation": ptr.Deref(own.AllowPrivilegeEscalation, true),
			"capabilities":             own.Capabilities == nil || !slices.Contains(own.Capabilities.Drop, "ALL"),
			"seccompProfile":           profile == nil || profile.Type != corev1.SeccompProfileTypeRuntimeDefault,
			"runAsNonRoot":             !ptr.Deref(own.RunAsNonRoot, ptr.Deref(of.RunAsNonRoot, false)),
			"runAsUser":                user != nil && *user == 0,
		} {
			if wrong {
				found = append(found, c.Name+" "+what)
			}
		}
	}
	slices.Sort(found)
	return found
}

func TestBuild_POD2_R11_ConformsToRestricted(t *testing.T) {
	cluster := testPool()
	cluster.Spec.Template.UserAssignment = v1alpha1.UserFromCluster
	cluster.Spec.Template.RunAsUser = ptr.To[int64](1001) // the API server's default
	readOnly := testPool()
	readOnly.Spec.Template.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
	microVM := testPool()
	microVM.Spec.Template.RuntimeClassName = ptr.To("kata")
	for name, pool := range map[string]*v1alpha1.RunnerPool{"the default": testPool(), "the cluster's user": cluster, "read-only": readOnly, "a microVM": microVM} {
		pod, _, err := Build(pool, testOptions, "abcd1234")
		require.NoError(t, err, name)
		require.Empty(t, violations(pod), name)
	}
	pod, _, err := Build(cluster, testOptions, "abcd1234")
	require.NoError(t, err)
	for _, c := range allContainers(pod) {
		require.True(t, c.SecurityContext == nil || c.SecurityContext.RunAsUser == nil, c.Name)
	}
	require.Nil(t, pod.Spec.SecurityContext.RunAsUser)
	pod, _, err = Build(readOnly, testOptions, "abcd1234")
	require.NoError(t, err)
	require.True(t, *container(t, pod, ContainerRunner).SecurityContext.ReadOnlyRootFilesystem)
}

func TestBuild_POD2_R11_APoolAsksForMore(t *testing.T) {
	runner := func(change func(*v1alpha1.RunnerTemplate)) (*corev1.Pod, *corev1.SecurityContext) {
		pool := testPool()
		change(&pool.Spec.Template)
		pod, _, err := Build(pool, testOptions, "abcd1234")
		require.NoError(t, err)
		return pod, container(t, pod, ContainerRunner).SecurityContext
	}
	_, sudo := runner(func(r *v1alpha1.RunnerTemplate) {
		r.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(true), Capabilities: &corev1.Capabilities{}}
	})
	require.True(t, *sudo.AllowPrivilegeEscalation)
	require.Empty(t, sudo.Capabilities.Drop, "those of the container runtime")
	pod, root := runner(func(r *v1alpha1.RunnerTemplate) { r.RunAsUser = ptr.To[int64](0) })
	require.Nil(t, root, "root without capabilities can do nothing that it is chosen for")
	require.Nil(t, pod.Spec.SecurityContext.RunAsNonRoot, "a kubelet would not start it")
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.Spec.SecurityContext.SeccompProfile.Type)
	_, admin := runner(func(r *v1alpha1.RunnerTemplate) {
		r.RuntimeClassName = ptr.To("kata")
		r.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
	})
	require.Nil(t, admin.AllowPrivilegeEscalation, "the API server refuses the two together")
	pod, _, err := Build(dockerPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	require.Nil(t, container(t, pod, ContainerRunner).SecurityContext, "the pod is privileged in any case, and its microVM confines it")
	require.Nil(t, pod.Spec.SecurityContext.RunAsNonRoot)
}

func TestBuild_NET7_R11_ASecurityContextLeavesNoContainer(t *testing.T) {
	for name, s := range map[string]*corev1.SecurityContext{
		"privileged":       {Privileged: ptr.To(true)},
		"SYS_ADMIN":        {Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}},
		"CAP_SYS_ADMIN":    {Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CAP_SYS_ADMIN"}}},
		"all":              {Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"ALL"}}},
		"the host's":       {WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: ptr.To(true)}},
		"a user of it own": {RunAsUser: ptr.To[int64](7)},
	} {
		pool := testPool()
		pool.Spec.Template.SecurityContext = s
		_, _, err := Build(pool, testOptions, "abcd1234")
		var invalid *InvalidTemplateError
		require.ErrorAs(t, err, &invalid, name)
	}
	pool := testPool()
	pool.Spec.Template.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CHOWN", "CAP_SETUID"}}}
	_, _, err := Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	pool.Spec.Template.RuntimeClassName = ptr.To("kata")
	pool.Spec.Template.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	pod, _, err := Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	require.Nil(t, container(t, pod, ContainerRunner).SecurityContext.AllowPrivilegeEscalation, "the API server refuses the two together")
}
