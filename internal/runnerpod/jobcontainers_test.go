package runnerpod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
)

func jobPool() *v1alpha1.RunnerPool {
	pool := testPool()
	pool.Spec.Template.JobContainers = &v1alpha1.JobContainers{}
	return pool
}

func withKey(key string) Options {
	options := testOptions
	options.JobContainersKey = key
	return options
}

// Pools without job containers do not pay for them: their pods, and so the hashes that decide on their replacement, are byte for byte those
// of the release before.
func TestBuild_PodsWithoutJobContainersAreWhatTheyWere(t *testing.T) {
	for name, c := range map[string]struct {
		pool *v1alpha1.RunnerPool
		want string
	}{
		"linux": {testPool(), "b0ab6d6fb8dd6bc0"}, "dind": {dockerPool(), "ba470e1073097757"}, "macos": {macPool(), "a76fd594fe5e2cfe"},
	} {
		for _, key := range []string{"", "a key"} {
			pod, account, err := Build(c.pool, withKey(key), "abcd1234")
			require.NoError(t, err, name)
			raw, err := json.Marshal([]any{pod, account})
			require.NoError(t, err)
			sum := sha256.Sum256(raw)
			require.Equal(t, c.want, hex.EncodeToString(sum[:8]), "%s, with key %q", name, key)
		}
	}
}

func TestBuild_JOB1_APodIsMadeForContainers(t *testing.T) {
	pod, account, err := Build(jobPool(), withKey("key"), "abcd1234")
	require.NoError(t, err)
	runner, carrier, agent := container(t, pod, ContainerRunner), container(t, pod, ContainerCourier), container(t, pod, ContainerAgent)
	require.Equal(t, []string{DefaultAgentCommand, "courier", "--limit", "877"}, carrier.Command, "12 KiB for 6 containers, and 8 that may follow")
	require.Nil(t, carrier.ReadinessProbe)
	require.Nil(t, carrier.LivenessProbe)
	require.Empty(t, carrier.Env)
	require.Equal(t, CourierMounts(), carrier.VolumeMounts, "neither the token nor what other containers run from")
	require.Equal(t, []string{DefaultAgentCommand, "install", "--to", agentBinary, "--container-hook", ContainerHook, jobcontainer.Binary}, agent.Command)
	require.Contains(t, runner.Env, corev1.EnvVar{Name: "BULLPEN_RESOURCES", Value: "4 CPU, 16Gi"})
	require.Contains(t, runner.Env, corev1.EnvVar{Name: "BULLPEN_JOB_DIR", Value: "/bullpen/job"})
	require.Contains(t, runner.Env, corev1.EnvVar{Name: courier.EnvPublicKey, Value: "key"})
	require.Contains(t, runner.Env, corev1.EnvVar{Name: "ACTIONS_RUNNER_CONTAINER_HOOKS", Value: ContainerHook})
	require.Contains(t, runner.VolumeMounts, corev1.VolumeMount{Name: VolumeWork, MountPath: "/home/runner/_work"}, "and the tool cache in it")
	require.Equal(t, int64(1001), *pod.Spec.SecurityContext.FSGroup)
	require.Contains(t, pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: "linux-4-abcd1234-pull"})
	require.Empty(t, account.ImagePullSecrets, "it is one pod's")

	volumes := map[string]corev1.Volume{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = v
		if v.EmptyDir != nil {
			require.NotNil(t, v.EmptyDir.SizeLimit, "%s (TEN-6)", v.Name)
		}
	}
	for _, m := range append(JobMounts(pod.Spec.Volumes), CourierMounts()...) {
		require.Contains(t, volumes, m.Name)
		require.NotEqual(t, VolumeToken, m.Name)
		require.NotEqual(t, VolumeShared, m.Name, "other containers run from it")
		require.Empty(t, m.SubPath, "ephemeral containers have none")
	}
	requireLimited(t, "job containers", pod)
	requireGuardFenced(t, pod)

	cluster := jobPool()
	cluster.Spec.Template.UserAssignment = v1alpha1.UserFromCluster
	pod, _, err = Build(cluster, withKey("key"), "abcd1234")
	require.NoError(t, err)
	require.Nil(t, pod.Spec.SecurityContext.FSGroup, "the cluster assigns it")
}

// requireGuardFenced requires that nothing but the init container can write to the program that runs as the first process of a job's container (JOB-1).
func requireGuardFenced(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	guard := corev1.VolumeMount{Name: VolumeGuard, MountPath: jobcontainer.GuardDir}
	require.Contains(t, container(t, pod, ContainerAgent).VolumeMounts, guard)
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			for _, m := range c.VolumeMounts {
				require.True(t, m.Name != VolumeGuard || c.Name == ContainerAgent || c.Name == ContainerBuildKit && m.ReadOnly, "%s mounts the guard's program", c.Name)
			}
		}
	}
	guard.ReadOnly = true
	require.Contains(t, JobMounts(pod.Spec.Volumes), guard)
	for _, m := range JobMounts(pod.Spec.Volumes) {
		require.True(t, m == guard || !overlaps(m.MountPath, jobcontainer.Binary), "%s is another mount", m.MountPath)
	}
}

func TestBuild_JOB5_RefusesPodsThatWouldNotBeBounded(t *testing.T) {
	for wrong, spoil := range map[string]func(*v1alpha1.RunnerPool, *Options){
		"runs without --job-containers": func(_ *v1alpha1.RunnerPool, o *Options) { o.JobContainersKey = "" },
		"is for platform linux":         func(p *v1alpha1.RunnerPool, _ *Options) { p.Spec.Platform = v1alpha1.PlatformMacOS },
		"container agent has none for cpu": func(p *v1alpha1.RunnerPool, _ *Options) {
			p.Spec.Template.AgentResources = &v1alpha1.ContainerResources{Limits: list("cpu", "0")}
		},
		"container agent has none for memory": func(p *v1alpha1.RunnerPool, _ *Options) {
			p.Spec.Template.AgentResources = &v1alpha1.ContainerResources{Limits: list("memory", "0")}
		},
		"contradicts spec.template.jobContainers": func(p *v1alpha1.RunnerPool, _ *Options) {
			p.Spec.Template.Env = []corev1.EnvVar{{Name: "ACTIONS_RUNNER_CONTAINER_HOOKS"}}
		},
		"overlaps the pod's own at /github": func(p *v1alpha1.RunnerPool, _ *Options) {
			p.Spec.Template.Volumes = []corev1.Volume{{Name: "mine", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Template.VolumeMounts = []corev1.VolumeMount{{Name: "mine", MountPath: "/github/home"}}
		},
		`is invalid: image pattern "app:": nothing is after the colon; registry "x.io/path"`: func(p *v1alpha1.RunnerPool, _ *Options) {
			p.Spec.Template.JobContainers.AllowedImages, p.Spec.Template.JobContainers.Registries = []string{"app:"}, []string{"x.io/path"}
		},
		"spec.template.jobContainers.shmSize is 1, but must be at least 64Mi": func(p *v1alpha1.RunnerPool, _ *Options) {
			p.Spec.Template.JobContainers.ShmSize = ptr.To(resource.MustParse("1"))
		},
		"spec.template.jobContainers.shmSize is 1Ti, and the memory limit of the pod is": func(p *v1alpha1.RunnerPool, _ *Options) {
			p.Spec.Template.JobContainers.ShmSize = ptr.To(resource.MustParse("1Ti"))
		},
		"exclude each other": func(p *v1alpha1.RunnerPool, _ *Options) {
			p.Spec.Template.Dind, p.Spec.Template.RuntimeClassName = &v1alpha1.Dind{}, ptr.To("kata")
		},
	} {
		pool, options := jobPool(), withKey("key")
		spoil(pool, &options)
		_, _, err := Build(pool, options, "abcd1234")
		invalid := (*InvalidTemplateError)(nil)
		require.True(t, errors.As(err, &invalid), wrong)
		require.ErrorContains(t, err, wrong)
	}
}

// What a job may ask for is decided when it asks: a change of that replaces no runner. A new key does, because requests could not be opened.
func TestTemplateHash_JOB3_ChangesWithTheKeyOfJobContainers(t *testing.T) {
	hash := func(pool *v1alpha1.RunnerPool, key string) string {
		h, err := TemplateHash(pool, withKey(key))
		require.NoError(t, err)
		return h
	}
	require.Equal(t, hash(testPool(), ""), hash(testPool(), "key"))
	require.NotEqual(t, hash(testPool(), "key"), hash(jobPool(), "key"))
	require.NotEqual(t, hash(jobPool(), "key"), hash(jobPool(), "other"))
	narrow := jobPool()
	narrow.Spec.Template.JobContainers.AllowedImages, narrow.Spec.Template.JobContainers.SecurityProfile = []string{"postgres"}, v1alpha1.ProfileBaseline
	require.Equal(t, hash(jobPool(), "key"), hash(narrow, "key"))
	narrow.Spec.Template.JobContainers.SecurityProfile = v1alpha1.ProfileRestricted
	require.NotEqual(t, hash(jobPool(), "key"), hash(narrow, "key"), "runners tell jobs which users images may have")
	pod, _, err := Build(narrow, withKey("key"), "abcd1234")
	require.NoError(t, err)
	require.Contains(t, container(t, pod, ContainerRunner).Env, corev1.EnvVar{Name: "BULLPEN_JOB_PROFILE", Value: "Restricted"})
	shm := func(size string) *v1alpha1.RunnerPool {
		pool := jobPool()
		pool.Spec.Template.JobContainers.ShmSize = ptr.To(resource.MustParse(size))
		return pool
	}
	require.NotEqual(t, hash(jobPool(), "key"), hash(shm("1Gi"), "key"), "a pod keeps its volumes")
	require.Equal(t, hash(shm("1024Mi"), "key"), hash(shm("1Gi"), "key"))
}

// /dev/shm has a size of its own in the containers of a job, and counts as their memory.
func TestBuild_JOB5_SizesTheSharedMemoryOfJobs(t *testing.T) {
	pool := jobPool()
	pool.Spec.Template.Build = v1alpha1.BuildWithBuildKit
	pool.Spec.Template.JobContainers.ShmSize = ptr.To(resource.MustParse("1Gi"))
	pod, _, err := Build(pool, withKey("key"), "abcd1234")
	require.NoError(t, err)
	want := corev1.Volume{Name: VolumeShm, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(resource.MustParse("1Gi"))},
	}}
	require.Contains(t, pod.Spec.Volumes, want)
	require.Contains(t, container(t, pod, ContainerRunner).Env, corev1.EnvVar{Name: "BULLPEN_SHM_SIZE", Value: "1073741824"})
	mount := corev1.VolumeMount{Name: VolumeShm, MountPath: "/dev/shm"}
	require.Contains(t, JobMounts(pod.Spec.Volumes), mount)
	require.NotContains(t, JobMounts(nil), mount)
	require.NotContains(t, container(t, pod, ContainerBuildKit).VolumeMounts, mount)
}

// A pull Secret is one runner's: pre-pull pods must not wait for it, nor change with each runner.
func TestPrepull_HasNoRunnersPullSecret(t *testing.T) {
	pool := jobPool()
	pool.Spec.ImagePrepull = &v1alpha1.ImagePrepull{}
	pod, _, err := Build(pool, withKey("key"), "abcd1234")
	require.NoError(t, err)
	require.Empty(t, sharedPullSecrets(pod))
	pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: "registry"})
	require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, sharedPullSecrets(pod))
}
