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
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podenv"
)

func containers(s *v1alpha1.RunnerSpec) {
	if s.JobContainers == nil {
		s.JobContainers = &v1alpha1.JobContainers{}
	}
	for i := range s.Template.Spec.Containers {
		s.Template.Spec.Containers[i].Resources = corev1.ResourceRequirements{Requests: list("cpu", "1", "memory", "4Gi"), Limits: list("cpu", "2", "memory", "4Gi")}
	}
}

func user(id int64) *corev1.SecurityContext { return &corev1.SecurityContext{RunAsUser: ptr.To(id)} }

func buildWithKey(t *testing.T, r Registered) *corev1.Pod {
	t.Helper()
	pod, err := BuildRegistered(r, withKey("key"))
	require.NoError(t, err)
	return pod
}

func TestBuildRegistered_JOB1_APodIsMadeForContainers(t *testing.T) {
	pod := buildWithKey(t, registered(registeredSpec(containers)))
	runner, carrier, agent := container(t, pod, ContainerRunner), container(t, pod, ContainerCourier), container(t, pod, ContainerAgent)
	require.Equal(t, []string{DefaultAgentCommand, "courier", "--limit", "945"}, carrier.Command, "12 KiB for 5 containers, and 8 that may follow")
	require.Equal(t, CourierMounts(), carrier.VolumeMounts, "neither what the runner registers with nor what other containers run from (NET-3)")
	require.Equal(t, []string{DefaultAgentCommand, "install", "--to", agentBinary, "--container-hook", ContainerHook, jobcontainer.Binary}, agent.Command)
	for _, e := range []corev1.EnvVar{
		{Name: podenv.JobDir, Value: jobcontainer.Dir}, {Name: podenv.Resources, Value: "2 CPU, 4Gi"}, {Name: courier.EnvPublicKey, Value: "key"},
		{Name: "ACTIONS_RUNNER_CONTAINER_HOOKS", Value: ContainerHook},
	} {
		require.Equal(t, []corev1.EnvVar{e}, occurrences(pod, e.Name))
	}
	require.Equal(t, "/home/runner/_work", mountOf(t, runner, VolumeWork))
	require.Equal(t, int64(DefaultRunAsUser), *pod.Spec.SecurityContext.RunAsUser, "couriers, which have no user of their own, read what the runner writes")
	require.Equal(t, int64(DefaultRunAsUser), *pod.Spec.SecurityContext.FSGroup, "files are shared by the group of GitHub's image")
	require.Equal(t, []corev1.LocalObjectReference{{Name: "r-u-pull"}}, pod.Spec.ImagePullSecrets)
	require.NotNil(t, named(pod.Spec.InitContainers, ContainerExternals), "jobs in containers run its Node.js")
	never := registered(registeredSpec(containers, func(s *v1alpha1.RunnerSpec) { s.Template.Spec.Containers[0].ImagePullPolicy = corev1.PullNever }))
	require.Equal(t, corev1.PullNever, container(t, buildWithKey(t, never), ContainerExternals).ImagePullPolicy)
	volumes := map[string]corev1.Volume{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = v
		if v.EmptyDir != nil {
			require.NotNil(t, v.EmptyDir.SizeLimit, "%s (TEN-6)", v.Name)
		}
	}
	for _, m := range append(JobMounts(pod.Spec.Volumes), CourierMounts()...) {
		require.Contains(t, volumes, m.Name)
	}
	requireLimited(t, "job containers", pod)
	requireGuardFenced(t, pod)
}

// RUN-5: from its own pod it makes the same one, whatever else is in it.
func TestBuildRegistered_JOB1_RUN5_ItsOwnPodGivesTheSameOne(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.RunnerSpec){
		"plain":  func(*v1alpha1.RunnerSpec) {},
		"builds": builds,
		"shm": func(s *v1alpha1.RunnerSpec) {
			s.JobContainers = &v1alpha1.JobContainers{ShmSize: ptr.To(resource.MustParse("1Gi"))}
		},
		"users": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Containers[0].SecurityContext = user(8)
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "side", Image: "side:1", SecurityContext: user(0)})
		},
		"more": func(s *v1alpha1.RunnerSpec) {
			p := &s.Template.Spec
			p.Containers = append(p.Containers, corev1.Container{Name: "side", Image: "side:1"})
			p.InitContainers = []corev1.Container{{Name: "prepare", Image: "p:1", Resources: corev1.ResourceRequirements{Limits: list("cpu", "1", "memory", "1Gi")}}}
			p.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
			p.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](7)}
		},
	} {
		r := registered(registeredSpec(change, containers))
		pod := buildWithKey(t, r)
		next := buildWithKey(t, again(r, pod))
		require.Equal(t, pod, next, name)
		require.Equal(t, pod, buildWithKey(t, again(r, next)), name)
		if name == "shm" {
			require.Equal(t, corev1.StorageMediumMemory, pod.Spec.Volumes[slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == VolumeShm })].EmptyDir.Medium)
			require.Len(t, occurrences(pod, podenv.ShmSize), 1)
		}
		if name == "users" {
			require.Equal(t, int64(8), *pod.Spec.SecurityContext.RunAsUser, "the runner's")
		}
		if name == "more" {
			require.Equal(t, int64(7), *pod.Spec.SecurityContext.FSGroup, "the runner's group")
			require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}, {Name: "r-u-pull"}}, pod.Spec.ImagePullSecrets)
		}
	}
}

func TestBuildRegistered_JOB1_BuildKitRunsActionsWithADockerfile(t *testing.T) {
	pod := buildWithKey(t, registered(registeredSpec(builds, containers)))
	kit := container(t, pod, ContainerBuildKit)
	require.Contains(t, kit.Command, "--actions-socket")
	for _, m := range sharedMounts() {
		require.Equal(t, m.MountPath, mountOf(t, kit, m.Name))
	}
	requireGuardFenced(t, pod)
	names := map[string]int{}
	for _, v := range pod.Spec.Volumes {
		names[v.Name]++
		require.Equal(t, 1, names[v.Name], v.Name)
	}
	for _, c := range pod.Spec.Containers {
		mounts := map[string]int{}
		for _, m := range c.VolumeMounts {
			mounts[m.MountPath]++
			require.Equal(t, 1, mounts[m.MountPath], "%s in %s", m.MountPath, c.Name)
		}
	}
	require.Len(t, occurrences(pod, podenv.JobDir), 1)
}

func TestBuildRegistered_JOB5_LimitsOfThePodDo(t *testing.T) {
	spec := registeredSpec(containers, func(s *v1alpha1.RunnerSpec) {
		s.Template.Spec.Containers[0].Resources.Limits = nil
		s.Template.Spec.Resources = &corev1.ResourceRequirements{Limits: list("cpu", "3", "memory", "6Gi")}
	})
	pod := buildWithKey(t, registered(spec))
	require.Equal(t, []corev1.EnvVar{{Name: podenv.Resources, Value: "3 CPU, 6Gi"}}, occurrences(pod, podenv.Resources))
}

func TestBuildRegistered_JOB5_RefusesPodsThatCouldNotHaveContainers(t *testing.T) {
	mount := func(at string) func(*v1alpha1.RunnerSpec, *Registered, *Options) {
		return func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.Volumes = []corev1.Volume{{Name: "own", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			s.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: at}}
		}
	}
	for wrong, spoil := range map[string]func(*v1alpha1.RunnerSpec, *Registered, *Options){
		"runs without --job-containers":    func(_ *v1alpha1.RunnerSpec, _ *Registered, o *Options) { o.JobContainersKey = "" },
		"is for ephemeral runners":         func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) { static(s) },
		"is not for RunnerSets":            func(_ *v1alpha1.RunnerSpec, r *Registered, _ *Options) { r.StatefulSet = true },
		"containerMode Kubernetes exclude": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) { kubernetes(s) },
		"containerMode Dind exclude":       func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) { dind(s) },
		"container runner has none for cpu": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.Containers[0].Resources.Limits = nil
		},
		"container agent has none for memory": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.AgentResources = &v1alpha1.ContainerResources{Limits: list("memory", "0")}
		},
		"and hostPID": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.HostPID, s.Template.Spec.RuntimeClassName = true, ptr.To("kata")
		},
		"jobContainers.shmSize is 1Ti, and the memory limit of the pod is": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.JobContainers.ShmSize = ptr.To(resource.MustParse("1Ti"))
		},
		`jobContainers is invalid: image pattern "app:"`: func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.JobContainers.AllowedImages = []string{"app:"}
		},
		"appArmorProfile": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}
		},
		"seLinuxOptions": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}}
		},
		"runAsNonRoot does not permit it": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}
			s.Template.Spec.Containers[0].SecurityContext = user(0)
		},
		`"service-1-0": with jobContainers such names are reserved`: func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.InitContainers = []corev1.Container{{Name: "service-1-0", Image: "i"}}
		},
		`"courier-1": with jobContainers such names are reserved`: func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "courier-1", Image: "i"})
		},
		"shareProcessNamespace": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.ShareProcessNamespace = ptr.To(true)
		},
		`workFolder is "w"`:                       func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) { s.WorkFolder = "w" },
		"overlaps the pod's own at /home/runner/": mount("/home/runner/_work/cache"),
		"overlaps the pod's own at /bullpen/job":  mount("/bullpen/job"),
		"contradicts jobContainers": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "ACTIONS_RUNNER_CONTAINER_HOOKS", Value: "/own.sh"}}
		},
		"Restricted does not permit root": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.JobContainers.SecurityProfile = v1alpha1.ProfileRestricted
			s.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](0)}
		},
		"one user for the runner and its pod": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](7)}
			s.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](8)}
		},
		"would be that of container side": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "side", Image: "i"})
			containers(s)
		},
		`"externals": the name is reserved`: func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "externals", Image: "i"})
		},
		"container side has none for cpu": func(s *v1alpha1.RunnerSpec, _ *Registered, _ *Options) {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "side", Image: "i", SecurityContext: user(0)})
		},
	} {
		spec, options := registeredSpec(containers), withKey("key")
		r := registered(spec)
		spoil(spec, &r, &options)
		_, err := BuildRegistered(r, options)
		var invalid *InvalidTemplateError
		require.ErrorAs(t, err, &invalid, wrong)
		require.ErrorContains(t, err, wrong)
	}
}

// POD-4: Kubernetes adds the pull secrets of its ServiceAccount to a pod that names none, and this one names its own.
func TestBuildRegistered_POD4_PullSecretsOfItsServiceAccountStay(t *testing.T) {
	r := registered(registeredSpec(containers))
	r.PullSecrets = []corev1.LocalObjectReference{{Name: "account"}}
	pod := buildWithKey(t, r)
	want := []corev1.LocalObjectReference{{Name: "account"}, {Name: "r-u-pull"}}
	require.Equal(t, want, pod.Spec.ImagePullSecrets)
	require.Equal(t, want, buildWithKey(t, again(r, pod)).Spec.ImagePullSecrets)
	r.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	require.Equal(t, "registry", buildWithKey(t, r).Spec.ImagePullSecrets[0].Name, "and not account")
	require.Empty(t, mustBuild(t, registered(registeredSpec())).Spec.ImagePullSecrets)
}

// JOB-3: users choose the names of Runners, and a Secret of that name may exist.
func TestPullSecretOf_JOB3_HasTheRunnersUIDInItsName(t *testing.T) {
	pod := buildWithKey(t, registered(registeredSpec(containers)))
	pod.OwnerReferences[0].Controller = ptr.To(true)
	require.Equal(t, pod.Spec.ImagePullSecrets[0].Name, PullSecretOf(pod))
	require.NotEqual(t, PullSecret("r"), PullSecretOf(pod))
	pool, _, err := Build(jobPool(), withKey("key"), "abcd1234")
	require.NoError(t, err)
	require.Equal(t, PullSecret(pool.Name), PullSecretOf(pool))
}

// JOB-6: the controller adds containers to pods with a courier. A template's own container of that name would be taken for one.
func TestBuildRegistered_JOB6_TheNameOfTheCourierIsReserved(t *testing.T) {
	_, err := BuildRegistered(registered(registeredSpec(func(s *v1alpha1.RunnerSpec) {
		s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: ContainerCourier, Image: "i"})
	})), testOptions)
	require.ErrorContains(t, err, "name is reserved")
}

// Unlike those of a pool, the runners of an owner keep what was permitted when they were made: a change replaces idle ones.
func TestRegisteredHash_JOB3_ChangesWithTheKeyAndWithWhatIsPermitted(t *testing.T) {
	hash := func(key string, change ...func(*v1alpha1.RunnerSpec)) string {
		sum, err := RegisteredHash(registeredSpec(change...), withKey(key))
		require.NoError(t, err)
		return sum
	}
	require.Equal(t, hash(""), hash("key"), "others do not pay for it")
	require.NotEqual(t, hash("key"), hash("key", containers))
	require.NotEqual(t, hash("key", containers), hash("other", containers))
	require.NotEqual(t, hash("key", containers), hash("key", containers, func(s *v1alpha1.RunnerSpec) { s.JobContainers.AllowedImages = []string{"postgres"} }))
	require.Equal(t, hash("key", containers), hash("key", containers, func(s *v1alpha1.RunnerSpec) { s.JobContainers.SecurityProfile = v1alpha1.ProfileBaseline }))
}
