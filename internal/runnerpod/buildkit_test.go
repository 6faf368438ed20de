package runnerpod

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podenv"
)

func buildPool() *v1alpha1.RunnerPool {
	pool := testPool()
	pool.Spec.Template.Build = v1alpha1.BuildWithBuildKit
	return pool
}

// What the daemon may do, it may in the pod's own user namespace.
func TestBuild_NET7_BuildKitHasAUserNamespace(t *testing.T) {
	for _, class := range []*string{nil, ptr.To("gvisor")} {
		pool := buildPool()
		pool.Spec.Template.RuntimeClassName = class
		pod, _, err := Build(pool, testOptions, "abcd1234")
		require.NoError(t, err)
		require.Equal(t, ptr.To(false), pod.Spec.HostUsers)
		require.NotNil(t, named(pod.Spec.Containers, ContainerBuildKit))
	}
	plain, _, err := Build(testPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	require.Nil(t, plain.Spec.HostUsers, "pods of other pools stay as they are")
}

func TestBuild_NET7_BuildKitGetsOneCapabilityAndNoToken(t *testing.T) {
	for name, pool := range map[string]*v1alpha1.RunnerPool{"alone": buildPool(), "with job containers": buildAndJobPool()} {
		t.Run(name, func(t *testing.T) {
			pod, _, err := Build(pool, withKey("key"), "abcd1234")
			require.NoError(t, err)
			kit := named(pod.Spec.Containers, ContainerBuildKit)
			s := kit.SecurityContext
			require.Equal(t, []corev1.Capability{"SYS_ADMIN"}, s.Capabilities.Add)
			require.Nil(t, s.Privileged)
			require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, s.SeccompProfile.Type)
			var mounts []string
			for _, m := range kit.VolumeMounts {
				mounts = append(mounts, m.Name)
				require.Equal(t, m.Name == VolumeGuard || m.Name == VolumeExternals, m.ReadOnly, m.Name)
			}
			want := []string{VolumeGuard, VolumeJob, volumeBuildKit}
			if pool.Spec.Template.JobContainers != nil { // actions with a Dockerfile run there (JOB-1)
				want = append(want, VolumeWork, VolumeGitHub, VolumeExternals)
			}
			requireGuardFenced(t, pod)
			require.Equal(t, jobcontainer.Binary, kit.Command[0])
			require.Equal(t, pool.Spec.Template.JobContainers != nil, slices.Contains(kit.Command, "--actions-socket"))
			require.ElementsMatch(t, want, mounts, "not the token (NET-3)")
			for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				for _, c := range list {
					if c.Name == ContainerBuildKit {
						continue
					}
					require.Empty(t, ptr.Deref(c.SecurityContext.Capabilities, corev1.Capabilities{}).Add, c.Name)
					require.NotEqual(t, ptr.To(false), c.SecurityContext.RunAsNonRoot, c.Name)
				}
			}
			require.Equal(t, ptr.To(true), pod.Spec.SecurityContext.RunAsNonRoot, "the others stay as they are (POD-2)")
			var jobs int
			for _, v := range pod.Spec.Volumes {
				if v.Name == VolumeJob {
					jobs++
				}
			}
			require.Equal(t, 1, jobs)
		})
	}
}

func buildAndJobPool() *v1alpha1.RunnerPool {
	pool := buildPool()
	pool.Spec.Template.JobContainers = &v1alpha1.JobContainers{}
	return pool
}

func TestBuild_JobsFindBuildKit(t *testing.T) {
	pod, _, err := Build(buildPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	runner := named(pod.Spec.Containers, ContainerRunner)
	env := map[string]string{}
	for _, e := range runner.Env {
		env[e.Name] = e.Value
	}
	require.Equal(t, "unix://"+jobcontainer.BuildKitSocket, env["BUILDKIT_HOST"])
	require.Equal(t, jobcontainer.BuildxBuilder, env["BUILDX_BUILDER"])
	require.Equal(t, jobcontainer.BuildxConfig, env["BUILDX_CONFIG"])
	require.Equal(t, jobcontainer.Dir, env[podenv.JobDir], "the supervisor holds the volume, so that the daemon ends with the runner (JOB-2)")
	require.NotContains(t, env, "ACTIONS_RUNNER_CONTAINER_HOOKS", "jobs cannot ask for containers")
	require.Equal(t, jobcontainer.Dir, mountOf(t, *runner, VolumeJob))
	agent := named(pod.Spec.InitContainers, ContainerAgent)
	require.Equal(t, jobcontainer.Dir, mountOf(t, *agent, VolumeJob))
	require.Equal(t, []string{
		DefaultAgentCommand, "install", "--to", agentBinary, "--buildx-config", jobcontainer.BuildxConfig, "--buildkit-host", buildKitAddress, jobcontainer.Binary,
	}, agent.Command, "files follow the flags")
}

func TestBuild_TEN6_BuildKitIsBounded(t *testing.T) {
	pool := buildPool()
	pool.Spec.Template.BuildKit = &v1alpha1.BuildKit{Storage: ptr.To(resource.MustParse("30Gi"))}
	pod, _, err := Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	kit := named(pod.Spec.Containers, ContainerBuildKit)
	require.Equal(t, pool.Spec.Resources.Memory.Value(), kit.Resources.Limits.Memory().Value())
	require.Equal(t, int64(30<<30+helperDisk), kit.Resources.Limits.StorageEphemeral().Value())
	require.Equal(t, int64(30<<30+helperDisk), kit.Resources.Requests.StorageEphemeral().Value())
	require.Contains(t, kit.Command, "32212254720")
	pool.Spec.Resources.EphemeralStorage = ptr.To(resource.MustParse("0"))
	pod, _, err = Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	require.NotContains(t, named(pod.Spec.Containers, ContainerBuildKit).Resources.Limits, corev1.ResourceEphemeralStorage, "on nodes that do not count disk")
}

func TestBuild_BuildIsRefusedWhereItCannotWork(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*v1alpha1.RunnerPool)
		text  string
	}{
		"macos": {func(p *v1alpha1.RunnerPool) { p.Spec.Platform = v1alpha1.PlatformMacOS }, "platform linux"},
		"dind": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.RuntimeClassName = ptr.To("kata")
			p.Spec.Template.Dind = &v1alpha1.Dind{}
		}, "exclude each other"},
		"unknown": {func(p *v1alpha1.RunnerPool) { p.Spec.Template.Build = "Kaniko" }, "must be BuildKit"},
		"no mode": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.Build = ""
			p.Spec.Template.BuildKit = &v1alpha1.BuildKit{}
		}, "set build"},
		"resources": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.BuildKit = &v1alpha1.BuildKit{Resources: &v1alpha1.ContainerResources{Limits: corev1.ResourceList{"gpu": resource.MustParse("1")}}}
		}, "buildKit.resources"},
		"a mount": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.Volumes = []corev1.Volume{{Name: "own", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Template.VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: "/bullpen/job"}}
		}, "overlaps"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := buildPool()
			c.spoil(pool)
			_, _, err := Build(pool, testOptions, "abcd1234")
			var invalid *InvalidTemplateError
			require.ErrorAs(t, err, &invalid)
			require.ErrorContains(t, err, c.text)
		})
	}
}

func TestTemplateHash_BuildKitsDefaultsAreItsValues(t *testing.T) {
	hash := func(kit *v1alpha1.BuildKit) string {
		pool := buildPool()
		pool.Spec.Template.BuildKit = kit
		sum, err := TemplateHash(pool, testOptions)
		require.NoError(t, err)
		return sum
	}
	said := &v1alpha1.BuildKit{Image: DefaultBuildKitImage, Storage: ptr.To(resource.MustParse("20480Mi"))}
	require.Equal(t, hash(nil), hash(said))
	require.Equal(t, hash(nil), hash(&v1alpha1.BuildKit{}))
	require.NotEqual(t, hash(nil), hash(&v1alpha1.BuildKit{Image: "registry.example.com/buildkit"}))
	plain, err := TemplateHash(testPool(), testOptions)
	require.NoError(t, err)
	require.NotEqual(t, plain, hash(nil))
}

func builds(s *v1alpha1.RunnerSpec) { s.Build = v1alpha1.BuildWithBuildKit }

func TestBuildRegistered_NET7_BuildKitIsThatOfPools(t *testing.T) {
	pod, err := BuildRegistered(registered(registeredSpec(builds)), testOptions)
	require.NoError(t, err)
	require.Equal(t, ptr.To(false), pod.Spec.HostUsers)
	kit := named(pod.Spec.Containers, ContainerBuildKit)
	require.NotNil(t, kit)
	require.Equal(t, int64(20<<30+helperDisk), kit.Resources.Limits.StorageEphemeral().Value())
	runner := named(pod.Spec.Containers, ContainerRunner)
	env := map[string]string{}
	for _, e := range runner.Env {
		env[e.Name] = e.Value
	}
	require.Equal(t, "unix://"+jobcontainer.BuildKitSocket, env["BUILDKIT_HOST"])
	require.Equal(t, jobcontainer.Dir, env[podenv.JobDir])
	require.Equal(t, jobcontainer.BuildKitSocket, env[podenv.AwaitSocket])
	for _, c := range []*corev1.Container{runner, named(pod.Spec.InitContainers, ContainerAgent), kit} {
		require.Equal(t, jobcontainer.Dir, mountOf(t, *c, VolumeJob), c.Name)
	}

	again := registered(registeredSpec(builds, func(s *v1alpha1.RunnerSpec) { s.Template.Spec = *pod.Spec.DeepCopy() }))
	same, err := BuildRegistered(again, testOptions)
	require.NoError(t, err)
	require.Equal(t, pod.Spec, same.Spec, "from its own pod it makes the same one (RUN-5)")

	for text, spoil := range map[string]func(*v1alpha1.RunnerSpec){
		"exclude each other": func(s *v1alpha1.RunnerSpec) {
			s.ContainerMode, s.Template.Spec.RuntimeClassName = v1alpha1.ContainerModeDind, ptr.To("kata")
		},
		"use dind there":   func(s *v1alpha1.RunnerSpec) { s.Template.Spec.RuntimeClassName = ptr.To("kata") },
		"must be BuildKit": func(s *v1alpha1.RunnerSpec) { s.Build = "Kaniko" },
		"set build":        func(s *v1alpha1.RunnerSpec) { s.Build, s.BuildKit = "", &v1alpha1.BuildKit{} },
		"name is reserved": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "buildkit", Image: "i"})
		},
		"overlaps the pod's": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Volumes = []corev1.Volume{{Name: "own", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			s.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: "/bullpen"}}
		},
		"buildKit.resources": func(s *v1alpha1.RunnerSpec) {
			s.BuildKit = &v1alpha1.BuildKit{Resources: &v1alpha1.ContainerResources{Limits: corev1.ResourceList{"gpu": resource.MustParse("1")}}}
		},
	} {
		_, err := BuildRegistered(registered(registeredSpec(builds, spoil)), testOptions)
		require.ErrorContains(t, err, text)
	}
}

func TestRegisteredHash_BuildKitsDefaultsAreItsValues(t *testing.T) {
	hash := func(kit *v1alpha1.BuildKit) string {
		spec := registeredSpec(builds, func(s *v1alpha1.RunnerSpec) { s.BuildKit = kit })
		sum, err := RegisteredHash(spec, testOptions)
		require.NoError(t, err)
		return sum
	}
	require.Equal(t, hash(nil), hash(&v1alpha1.BuildKit{Image: DefaultBuildKitImage, Storage: ptr.To(resource.MustParse("20480Mi"))}))
	require.NotEqual(t, hash(nil), hash(&v1alpha1.BuildKit{Image: "registry.example.com/buildkit"}))
}
