package runnerpod

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	componentresource "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

func emptyDir(name, limit string, medium corev1.StorageMedium) corev1.Volume {
	dir := &corev1.EmptyDirVolumeSource{Medium: medium}
	if limit != "" {
		dir.SizeLimit = ptr.To(resource.MustParse(limit))
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: dir}}
}

func withDisk(pool *v1alpha1.RunnerPool, size string) *v1alpha1.RunnerPool {
	pool.Spec.Resources.EphemeralStorage = ptr.To(resource.MustParse(size))
	return pool
}

// requireBounded fails if anything that a job can write to has no bound, or may take more than the scheduler has counted.
func requireBounded(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		limit, request := c.Resources.Limits.StorageEphemeral(), c.Resources.Requests.StorageEphemeral()
		require.Positive(t, limit.Sign(), "%s: container %s has no limit", name, c.Name)
		require.Zero(t, limit.Cmp(*request), "%s: container %s may write more than it requests", name, c.Name)
	}
	all := componentresource.PodLimits(pod, componentresource.PodResourcesOptions{})
	for _, v := range pod.Spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault {
			require.NotNil(t, v.EmptyDir.SizeLimit, "%s: volume %s has no limit", name, v.Name)
			require.LessOrEqual(t, v.EmptyDir.SizeLimit.Value(), all.StorageEphemeral().Value(), "%s: volume %s", name, v.Name)
		}
	}
	requests := componentresource.PodRequests(pod, componentresource.PodResourcesOptions{})
	require.Equal(t, all.StorageEphemeral().Value(), requests.StorageEphemeral().Value(), name)
}

func requireUnbounded(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		require.Zero(t, c.Resources.Requests.StorageEphemeral().Sign(), "%s: container %s", name, c.Name)
		require.Zero(t, c.Resources.Limits.StorageEphemeral().Sign(), "%s: container %s", name, c.Name)
	}
}

func TestBuild_TEN6_NoContainerOrVolumeOfAJobIsWithoutALimit(t *testing.T) {
	own := testPool()
	own.Spec.Template.Volumes = []corev1.Volume{emptyDir("cache", "", ""), emptyDir("small", "1Gi", ""), emptyDir("memory", "", corev1.StorageMediumMemory)}
	const mebi = int64(1) << 20
	for name, c := range map[string]struct {
		pool *v1alpha1.RunnerPool
		want int64 // mebibytes of the whole pod
	}{
		"the default":     {testPool(), 10<<10 + 2*128},
		"as it says":      {withDisk(testPool(), "20Gi"), 20<<10 + 2*128},
		"its own volumes": {own, 10<<10 + 2*128},
		"with a daemon":   {dockerPool(), 10<<10 + 2*128 + 20<<10 + 2<<10 + 256 + 128},
	} {
		pod, _, err := Build(c.pool, testOptions, "abcd1234")
		require.NoError(t, err, name)
		requireBounded(t, name, pod)
		requests := componentresource.PodRequests(pod, componentresource.PodResourcesOptions{})
		require.Equal(t, c.want*mebi, requests.StorageEphemeral().Value(), name)
		runner := container(t, pod, ContainerRunner)
		require.Equal(t, runner.Resources.Requests, runner.Resources.Limits, name)
		for _, v := range pod.Spec.Volumes {
			switch v.Name {
			case VolumeWork, "cache":
				require.Zero(t, v.EmptyDir.SizeLimit.Cmp(*runner.Resources.Limits.StorageEphemeral()), "%s: %s", name, v.Name)
			case "small":
				require.Equal(t, "1Gi", v.EmptyDir.SizeLimit.String(), "the template's own stays")
			case "memory":
				require.Nil(t, v.EmptyDir.SizeLimit, "it is charged to the memory")
			}
		}
	}
}

// A node that does not count its disk takes no pod that requests any.
func TestBuild_TEN6_ZeroRequestsNoDiskAtAll(t *testing.T) {
	for name, pool := range map[string]*v1alpha1.RunnerPool{"plain": withDisk(testPool(), "0"), "with a daemon": withDisk(dockerPool(), "0")} {
		pod, _, err := Build(pool, testOptions, "abcd1234")
		require.NoError(t, err, name)
		requireUnbounded(t, name, pod)
	}
}

func TestBuild_TEN6_MacPodsRequestNoDiskOfTheirHost(t *testing.T) {
	pod, _, err := Build(macPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	requireUnbounded(t, "mac", pod)
	for _, v := range pod.Spec.Volumes {
		require.True(t, v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil, "node agents of Macs do not read it: %s", v.Name)
	}
}

func TestBuild_TEN6_RefusesWhatIsNoBound(t *testing.T) {
	for name, c := range map[string]struct {
		pool *v1alpha1.RunnerPool
		want string
	}{
		"negative":   {withDisk(testPool(), "-1Gi"), "at least 1Gi"},
		"no unit":    {withDisk(testPool(), "20"), "write the unit"},
		"for Macs":   {withDisk(macPool(), "20Gi"), "remove it"},
		"0 for Macs": {withDisk(macPool(), "0"), "remove it"},
	} {
		_, _, err := Build(c.pool, testOptions, "abcd1234")
		var invalid *InvalidTemplateError
		require.ErrorAs(t, err, &invalid, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestTemplateHash_TEN6_TellsLimitsOfDiskApart(t *testing.T) {
	hash := func(pool *v1alpha1.RunnerPool) string {
		h, err := TemplateHash(pool, testOptions)
		require.NoError(t, err)
		return h
	}
	require.Equal(t, hash(testPool()), hash(withDisk(testPool(), "10Gi")), "the default, written down")
	require.Equal(t, hash(testPool()), hash(withDisk(testPool(), "10240Mi")), "another writing")
	require.NotEqual(t, hash(testPool()), hash(withDisk(testPool(), "20Gi")))
	require.NotEqual(t, hash(testPool()), hash(withDisk(testPool(), "0")))
}

func TestBuildRegistered_TEN6_NoContainerOrVolumeOfAJobIsWithoutALimit(t *testing.T) {
	limits := func(size string) func(*v1alpha1.RunnerSpec) {
		return func(s *v1alpha1.RunnerSpec) {
			set(&s.Template.Spec.Containers[0].Resources.Limits, corev1.ResourceEphemeralStorage, resource.MustParse(size))
		}
	}
	requests := func(s *v1alpha1.RunnerSpec) {
		set(&s.Template.Spec.Containers[0].Resources.Requests, corev1.ResourceEphemeralStorage, resource.MustParse("50Gi"))
	}
	volumes := func(s *v1alpha1.RunnerSpec) {
		s.Template.Spec.Volumes = []corev1.Volume{emptyDir("cache", "5Gi", ""), emptyDir("memory", "3Gi", corev1.StorageMediumMemory)}
	}
	for name, c := range map[string]struct {
		spec *v1alpha1.RunnerSpec
		want string // of the runner
	}{
		"the default":        {registeredSpec(), "10Gi"},
		"static":             {registeredSpec(static), "10Gi"},
		"with a daemon":      {registeredSpec(dind), "10Gi"},
		"in Kubernetes mode": {registeredSpec(kubernetes), "10Gi"},
		"its own limit":      {registeredSpec(dind, limits("3Gi")), "3Gi"},
		"its own request":    {registeredSpec(requests), "50Gi"},
		"its own volumes":    {registeredSpec(volumes), "15Gi"},
	} {
		pod, err := BuildRegistered(registered(c.spec), testOptions)
		require.NoError(t, err, name)
		requireBounded(t, name, pod)
		runner := container(t, pod, ContainerRunner)
		require.Zero(t, runner.Resources.Limits.StorageEphemeral().Cmp(resource.MustParse(c.want)), "%s: %v", name, runner.Resources.Limits)

		again := c.spec.DeepCopy()
		again.Template.Spec = *pod.Spec.DeepCopy()
		same, err := BuildRegistered(registered(again), testOptions)
		require.NoError(t, err, name)
		require.Equal(t, pod.Spec, same.Spec, "RUN-5: %s", name)
	}
	pod, err := BuildRegistered(registered(registeredSpec(dind, limits("0"))), testOptions)
	require.NoError(t, err)
	requireUnbounded(t, "its own limit of 0", pod)
}
