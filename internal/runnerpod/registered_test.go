package runnerpod

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

func registeredSpec(change ...func(*v1alpha1.RunnerSpec)) *v1alpha1.RunnerSpec {
	s := &v1alpha1.RunnerSpec{
		Registration: v1alpha1.Registration{Repository: "acme/app", Labels: []string{"gpu"}},
		Template:     corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: ContainerRunner, Image: "runner:1"}}}},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func static(s *v1alpha1.RunnerSpec) { s.Ephemeral = ptr.To(false) }

func kubernetes(s *v1alpha1.RunnerSpec) {
	s.ContainerMode = v1alpha1.ContainerModeKubernetes
	s.Kubernetes = &v1alpha1.KubernetesMode{ServiceAccountName: "jobs", WorkVolumeClaim: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}}
}

func dind(s *v1alpha1.RunnerSpec) {
	s.ContainerMode = v1alpha1.ContainerModeDind
	s.Template.Spec.RuntimeClassName = ptr.To("kata")
}

func registered(spec *v1alpha1.RunnerSpec) Registered {
	return Registered{
		Namespace: "runners", Name: "r", Secret: "r-registration", Spec: spec, TemplateHash: "0123",
		Labels: map[string]string{LabelReplicaSet: "set"}, Owners: []metav1.OwnerReference{{Kind: "Runner", Name: "r", UID: "u"}},
		Facts: RegistrationFacts{Name: "r-abcde", ID: 7, Repository: spec.Repository, Organization: spec.Organization, Credentials: "pat"},
	}
}

func mustBuild(t require.TestingT, r Registered) *corev1.Pod {
	pod, err := BuildRegistered(r, testOptions)
	require.NoError(t, err)
	return pod
}

// again is the runner whose template is that pod.
func again(r Registered, pod *corev1.Pod) Registered {
	spec := r.Spec.DeepCopy()
	spec.Template.ObjectMeta, spec.Template.Spec = pod.ObjectMeta, pod.Spec
	r.Spec = spec
	return r
}

// occurrences of a variable in all containers of a pod.
func occurrences(pod *corev1.Pod, name string) []corev1.EnvVar {
	var found []corev1.EnvVar
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			for _, e := range c.Env {
				if e.Name == name {
					found = append(found, e)
				}
			}
		}
	}
	return found
}

// anySpec draws a spec with anything that a person, or an earlier build, may have put into its template.
func anySpec(t *rapid.T) *v1alpha1.RunnerSpec {
	variables := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.EnvVar {
		return corev1.EnvVar{Name: rapid.SampledFrom([]string{EnvRunnerName, EnvRunnerToken, "DOCKER_HOST", "MINE", envHookPod}).Draw(t, "name"),
			Value: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "value")}
	}), 0, 5)
	spec := registeredSpec(rapid.SampledFrom([]func(*v1alpha1.RunnerSpec){
		func(*v1alpha1.RunnerSpec) {}, static, kubernetes, dind, builds,
		func(s *v1alpha1.RunnerSpec) { static(s); dind(s) }, func(s *v1alpha1.RunnerSpec) { static(s); kubernetes(s); builds(s) },
	}).Draw(t, "mode"))
	p := &spec.Template.Spec
	p.Containers[0].Env = variables.Draw(t, "env")
	p.Containers[0].Command = rapid.SampledFrom([][]string{nil, {"/home/runner/run.sh"}, {"/opt/run", "--", "x"}}).Draw(t, "command")
	if rapid.Bool().Draw(t, "sidecar") {
		p.Containers = append(p.Containers, corev1.Container{Name: "side", Image: "side:1", Env: variables.Draw(t, "side env")})
	}
	if rapid.Bool().Draw(t, "init") {
		p.InitContainers = []corev1.Container{{Name: "prepare", Image: "i:1", Env: variables.Draw(t, "init env")}}
	}
	if rapid.Bool().Draw(t, "volume") {
		p.Volumes = []corev1.Volume{{Name: "cache"}}
		p.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}}
	}
	if rapid.Bool().Draw(t, "context") {
		p.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](7), SupplementalGroups: []int64{5}}
	}
	p.RestartPolicy = rapid.SampledFrom([]corev1.RestartPolicy{"", corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure}).Draw(t, "restart")
	spec.Template.Labels = rapid.SampledFrom([]map[string]string{nil, {"team": "a"}, {LabelPool: "p", "team": "b"}}).Draw(t, "labels")
	spec.Template.Annotations = rapid.SampledFrom([]map[string]string{nil, {"team": "a"}, {AnnotationAllowDeletion: "x"}}).Draw(t, "annotations")
	return spec
}

// PR #1179, fa287c43: RUNNER_NAME and RUNNER_TOKEN were there twice, because two injectors saw one pod.
func TestBuildRegistered_RUN5_fa287c43_NameAndTokenOccurExactlyOnceHoweverOftenItIsBuilt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := registered(anySpec(t))
		r.StatefulSet = rapid.Bool().Draw(t, "statefulset")
		before, err := json.Marshal(r.Spec)
		require.NoError(t, err)
		pod := mustBuild(t, r)
		after, err := json.Marshal(r.Spec)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after), "building changes nothing of what it is given")

		for range 3 {
			require.Equal(t, []corev1.EnvVar{{Name: EnvRunnerName, Value: "r-abcde"}}, occurrences(pod, EnvRunnerName))
			tokens := occurrences(pod, EnvRunnerToken)
			if r.ephemeral() {
				require.Empty(t, tokens)
			} else {
				require.Len(t, tokens, 1)
				require.Equal(t, corev1.EnvVar{Name: EnvRunnerToken}, tokens[0], "NET-3: jobs can read it, so it holds nothing")
			}
			next := mustBuild(t, again(r, pod))
			require.Equal(t, pod, next, "build(build(x)) is build(x)")
			pod = next
		}
	})
}

func TestBuildRegistered_KeepsTheTemplateWhole(t *testing.T) {
	spec := registeredSpec(func(s *v1alpha1.RunnerSpec) {
		s.Template.Labels = map[string]string{"team": "build", LabelPool: "other", LabelRunner: "false"}
		s.Template.Annotations = map[string]string{"note": "mine", AnnotationAllowDeletion: "always"}
		s.Template.Finalizers = []string{"acme.example/cleanup"}
		p := &s.Template.Spec
		p.Containers[0].Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
		p.Containers[0].Command = []string{"/opt/runner", "run"}
		p.Containers[0].Args = []string{"--once"}
		p.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}}
		p.Containers = append(p.Containers, corev1.Container{Name: "proxy", Image: "proxy:1"})
		p.InitContainers = []corev1.Container{{Name: "prepare", Image: "prepare:1"}}
		p.Volumes = []corev1.Volume{{Name: "cache"}}
		p.NodeSelector = map[string]string{"disk": "fast"}
		p.ServiceAccountName = "pulls"
		p.AutomountServiceAccountToken = ptr.To(true)
		p.RestartPolicy = corev1.RestartPolicyAlways
	})
	pod := mustBuild(t, registered(spec))
	require.Equal(t, map[string]string{
		"team": "build", LabelRunner: "true", LabelSelfRegistering: "true", LabelEphemeral: "true", LabelTemplateHash: "0123", LabelReplicaSet: "set",
	}, pod.Labels, "NET-4: what the product goes by is the product's alone")
	require.Equal(t, "mine", pod.Annotations["note"])
	require.NotContains(t, pod.Annotations, AnnotationAllowDeletion, "EXCL-7: a template cannot make its runners free for all")
	require.Equal(t, []string{"acme.example/cleanup", FinalizerRegistration}, pod.Finalizers)
	runner := container(t, pod, ContainerRunner)
	require.Equal(t, []string{"/bullpen/shared/bullpen-agent", "run", "--jit-file", "/bullpen/registration/jitconfig", "--status-dir", "/bullpen/shared", "--",
		"/opt/runner", "run"}, runner.Command)
	require.Equal(t, []string{"--once"}, runner.Args)
	require.Equal(t, "2", runner.Resources.Limits.Cpu().String())
	require.Equal(t, "/cache", mountOf(t, runner, "cache"))
	require.Equal(t, "proxy:1", container(t, pod, "proxy").Image)
	require.Equal(t, []string{ContainerAgent, "prepare"}, []string{pod.Spec.InitContainers[0].Name, pod.Spec.InitContainers[1].Name})
	require.Equal(t, map[string]string{"disk": "fast"}, pod.Spec.NodeSelector)
	require.Equal(t, "pulls", pod.Spec.ServiceAccountName)
	require.False(t, *pod.Spec.AutomountServiceAccountToken, "NET-3")
	require.Equal(t, corev1.RestartPolicyNever, pod.Spec.RestartPolicy)
	require.EqualValues(t, DefaultGraceSeconds, *pod.Spec.TerminationGracePeriodSeconds, "POOL-9")
	require.Subset(t, pod.Spec.Tolerations, stayTolerations(), "POOL-9")

	facts, err := RegistrationOf(pod)
	require.NoError(t, err)
	require.Equal(t, registered(spec).Facts, facts, "an orphan can be unregistered by what is on it")
}

// EXCL-4: a job is shown by the exit of a container where an exit says it once and for all, and else by a probe.
func TestBuildRegistered_EXCL4_ShowsAJobByAnExitOrByAProbe(t *testing.T) {
	for name, c := range map[string]struct {
		static, statefulSet, exits bool
	}{
		"ephemeral": {exits: true}, "static": {static: true}, "of a StatefulSet": {statefulSet: true},
		"static, of a StatefulSet": {static: true, statefulSet: true},
	} {
		r := registered(registeredSpec(func(s *v1alpha1.RunnerSpec) {
			s.Ephemeral = ptr.To(!c.static)
			s.Template.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "proxy:1"}}, s.Template.Spec.Containers...)
		}))
		r.StatefulSet = c.statefulSet
		pod := mustBuild(t, r)
		runner, idle := container(t, pod, ContainerRunner), named(pod.Spec.Containers, ContainerIdle)
		require.Equal(t, c.exits, idle != nil, name)
		require.Equal(t, !c.exits, runner.ReadinessProbe != nil, name)
		if c.exits {
			require.Equal(t, []string{"/bullpen/shared/bullpen-agent", "idle"}, idle.Command)
			require.Len(t, idle.VolumeMounts, 1, "NET-3: not what the runner registers with")
		} else {
			require.Equal(t, []string{"/bullpen/shared/bullpen-agent", "ready", "--status-dir", "/bullpen/shared"}, runner.ReadinessProbe.Exec.Command, name)
		}
		r.Spec.Template.Spec = pod.Spec
		slices.Reverse(r.Spec.Template.Spec.Containers) // the runner moves when idle is taken out before it
		again := mustBuild(t, r)
		require.ElementsMatch(t, pod.Spec.Containers, again.Spec.Containers, "RUN-5: %s", name)
	}
}

// PR #1179 follow-ups 759349de, e46b90f7, b09c5404, 79a31328: runners were restarted in place, or stuck in Terminating.
func TestBuildRegistered_RUN7_759349de_RestartPolicyIsNeverWhateverTheTemplateSays(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{"", corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
		spec := registeredSpec(func(s *v1alpha1.RunnerSpec) { s.Template.Spec.RestartPolicy = policy })
		require.Equal(t, corev1.RestartPolicyNever, mustBuild(t, registered(spec)).Spec.RestartPolicy)
		r := registered(spec)
		r.StatefulSet = true
		pod := mustBuild(t, r)
		require.Equal(t, corev1.RestartPolicyAlways, pod.Spec.RestartPolicy, "the API server takes no other of a StatefulSet")
		require.Empty(t, pod.Name)
		require.Empty(t, pod.OwnerReferences)
	}
	again := registeredSpec(func(s *v1alpha1.RunnerSpec) {
		s.Template.Spec.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	})
	_, err := BuildRegistered(registered(again), testOptions)
	require.ErrorContains(t, err, "never started twice")
}

func TestBuildRegistered_NET3_TheSecretIsInTheRunnerAloneAndNoTokenOfKubernetesIs(t *testing.T) {
	for name, mode := range map[string]func(*v1alpha1.RunnerSpec){"ephemeral": func(*v1alpha1.RunnerSpec) {}, "static": static, "dind": dind, "kubernetes": kubernetes} {
		spec := registeredSpec(mode, func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "proxy", Image: "proxy:1"})
		})
		pod := mustBuild(t, registered(spec))
		require.False(t, *pod.Spec.AutomountServiceAccountToken, name)
		tokens := map[string]bool{}
		for _, v := range pod.Spec.Volumes {
			if v.Projected != nil {
				tokens[v.Name] = true
			}
			if v.Name == VolumeRegistration {
				require.Nil(t, v.Secret.Optional, "a missing Secret keeps the pod from starting")
			}
		}
		require.Equal(t, name == "kubernetes", len(tokens) == 1, name)
		for _, c := range append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...) {
			for _, e := range c.Env { // a job reads them in /proc/1/environ
				require.False(t, e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil, "%s: %s has variable %s from a Secret", name, c.Name, e.Name)
			}
			for _, m := range c.VolumeMounts {
				require.True(t, c.Name == ContainerRunner || m.Name != VolumeRegistration && !tokens[m.Name], "%s: %s mounts %s", name, c.Name, m.Name)
			}
		}
		if name == "kubernetes" {
			require.Equal(t, "jobs", pod.Spec.ServiceAccountName)
		}
	}
}

func TestBuildRegistered_NET7_PrivilegesNeedAMicroVM(t *testing.T) {
	for what, spoil := range map[string]func(*v1alpha1.RunnerSpec){
		"dind":           func(s *v1alpha1.RunnerSpec) { s.ContainerMode = v1alpha1.ContainerModeDind },
		"host network":   func(s *v1alpha1.RunnerSpec) { s.Template.Spec.HostNetwork = true },
		"host processes": func(s *v1alpha1.RunnerSpec) { s.Template.Spec.HostPID = true },
		"host IPC":       func(s *v1alpha1.RunnerSpec) { s.Template.Spec.HostIPC = true },
		"host path": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Volumes = []corev1.Volume{{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		},
		"privileged": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		},
		"SYS_ADMIN": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
		},
		"every capability": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.InitContainers = []corev1.Container{{Name: "i", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"all"}}}}}
		},
		"privileged init": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.InitContainers = []corev1.Container{{Name: "i", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := BuildRegistered(registered(registeredSpec(spoil)), testOptions)
			var invalid *InvalidTemplateError
			require.ErrorAs(t, err, &invalid)
			require.ErrorContains(t, err, "is not a known class of microVMs")
			vm := registeredSpec(spoil, func(s *v1alpha1.RunnerSpec) { s.Template.Spec.RuntimeClassName = ptr.To("kata") })
			_, err = BuildRegistered(registered(vm), testOptions)
			require.NoError(t, err)
			none := testOptions
			none.MicroVMClasses = []string{}
			_, err = BuildRegistered(registered(vm), none)
			require.ErrorAs(t, err, &invalid)
		})
	}
}

func TestBuildRegistered_NET7_SysAdminIsLimitedToAUserNamespace(t *testing.T) {
	_, err := BuildRegistered(registered(registeredSpec(func(s *v1alpha1.RunnerSpec) {
		s.Template.Spec.HostUsers = ptr.To(false)
		s.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
	})), testOptions)
	require.NoError(t, err)
}

func TestBuildRegistered_RefusesWithASentence(t *testing.T) {
	onRunner := func(change func(*corev1.Container)) func(*v1alpha1.RunnerSpec) {
		return func(s *v1alpha1.RunnerSpec) { change(&s.Template.Spec.Containers[0]) }
	}
	for says, spoil := range map[string]func(*v1alpha1.RunnerSpec){
		"no container runner":        onRunner(func(c *corev1.Container) { c.Name = "main" }),
		"no image":                   onRunner(func(c *corev1.Container) { c.Image = "" }),
		"args without a command":     onRunner(func(c *corev1.Container) { c.Args = []string{"x"} }),
		"has a readinessProbe":       onRunner(func(c *corev1.Container) { c.ReadinessProbe = &corev1.Probe{} }),
		"has a livenessProbe":        onRunner(func(c *corev1.Container) { c.LivenessProbe = &corev1.Probe{} }),
		"has a startupProbe":         onRunner(func(c *corev1.Container) { c.StartupProbe = &corev1.Probe{} }),
		"are reserved for the agent": onRunner(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "BULLPEN_POD_NAME"}} }),
		"not in template.spec.volumes": onRunner(func(c *corev1.Container) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "nowhere", MountPath: "/x"}}
		}),
		"overlaps the pod's own": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Volumes = []corev1.Volume{{Name: "v"}}
			s.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/bullpen"}}
		},
		"holds the runner's registration": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{
				Name: "thief", VolumeMounts: []corev1.VolumeMount{{Name: VolumeRegistration, MountPath: "/x"}},
			})
		},
		"holds a ServiceAccount token": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}},
			}}}}
		},
		"names that begin with bullpen-": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Volumes = []corev1.Volume{{Name: VolumeShared, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		},
		"reserved for the controller": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: ContainerPoller})
		},
		"init container runner: the name is reserved": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.InitContainers = []corev1.Container{{Name: ContainerRunner}}
		},
		"would hide whether": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "side", ReadinessProbe: &corev1.Probe{}})
		},
		"activeDeadlineSeconds": func(s *v1alpha1.RunnerSpec) { s.Template.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) },
		"ephemeralContainers": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
		},
		"tolerationSeconds": func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Tolerations = []corev1.Toleration{{Key: "k", TolerationSeconds: ptr.To[int64](1)}}
		},
		"exactly one of enterprise":                func(s *v1alpha1.RunnerSpec) { s.Organization = "acme" },
		"set exactly one of":                       func(s *v1alpha1.RunnerSpec) { s.Repository = "" },
		"kubernetes and containerMode":             func(s *v1alpha1.RunnerSpec) { s.ContainerMode = v1alpha1.ContainerModeKubernetes },
		"accessModes must include ReadWriteOnce":   func(s *v1alpha1.RunnerSpec) { kubernetes(s); s.Kubernetes.WorkVolumeClaim.AccessModes = nil },
		"is created by kubernetes.workVolumeClaim": func(s *v1alpha1.RunnerSpec) { kubernetes(s); s.Template.Spec.Volumes = []corev1.Volume{{Name: "work"}} },
		"conflicts with that of containerMode": func(s *v1alpha1.RunnerSpec) {
			kubernetes(s)
			s.Template.Spec.Volumes = []corev1.Volume{{Name: "v"}}
			s.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/home/runner/_work/"}}
		},
		"hide the Docker socket": func(s *v1alpha1.RunnerSpec) {
			dind(s)
			s.Template.Spec.Volumes = []corev1.Volume{{Name: "v"}}
			s.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/var/run"}}
		},
	} {
		t.Run(says, func(t *testing.T) {
			_, err := BuildRegistered(registered(registeredSpec(spoil)), testOptions)
			var invalid *InvalidTemplateError
			require.ErrorAs(t, err, &invalid)
			require.ErrorContains(t, err, says)
		})
	}
}

func TestBuildRegistered_KubernetesMode(t *testing.T) {
	pod := mustBuild(t, registered(registeredSpec(kubernetes, func(s *v1alpha1.RunnerSpec) {
		s.WorkFolder = "jobs"
		s.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: envJobRequired, Value: "false"}}
	})))
	runner := container(t, pod, ContainerRunner)
	require.Equal(t, "/home/runner/jobs", mountOf(t, runner, "work"), "the hooks look for the claim <pod>-work")
	require.Contains(t, runner.Env, fieldEnv("ACTIONS_RUNNER_POD_NAME", "metadata.name"))
	require.Contains(t, runner.Env, corev1.EnvVar{Name: "ACTIONS_RUNNER_CONTAINER_HOOKS", Value: "/home/runner/k8s/index.js"})
	require.Equal(t, []corev1.EnvVar{{Name: envJobRequired, Value: "false"}}, occurrences(pod, envJobRequired), "the template's own wins")
	require.EqualValues(t, DefaultRunAsUser, *pod.Spec.SecurityContext.FSGroup)
	at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "work" })
	require.Equal(t, corev1.ReadWriteOnce, pod.Spec.Volumes[at].Ephemeral.VolumeClaimTemplate.Spec.AccessModes[0])
}

func TestBuildRegistered_DindSharesSocketAndWorkWithTheRunner(t *testing.T) {
	pod := mustBuild(t, registered(registeredSpec(dind)))
	daemon, runner := container(t, pod, ContainerDind), container(t, pod, ContainerRunner)
	require.Equal(t, "/home/runner/_work", mountOf(t, daemon, VolumeWork), "the daemon resolves the runner's paths")
	require.Equal(t, "/home/runner/_work", mountOf(t, runner, VolumeWork))
	require.Equal(t, mountOf(t, daemon, volumeSocket), mountOf(t, runner, volumeSocket))
	require.Contains(t, pod.Spec.SecurityContext.SupplementalGroups, int64(dockerGroup))
	claimed := registered(registeredSpec(dind, func(s *v1alpha1.RunnerSpec) {
		s.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "disk", MountPath: "/home/runner/_work"}}
	}))
	claimed.StatefulSet, claimed.Claims = true, []string{"disk"}
	pod = mustBuild(t, claimed)
	require.Equal(t, "/home/runner/_work", mountOf(t, container(t, pod, ContainerDind), "disk"), "a volume that outlives the runner is the daemon's as well")
	require.NotContains(t, fmt.Sprint(pod.Spec.Volumes), VolumeWork)
}
