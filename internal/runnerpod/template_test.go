package runnerpod

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

var testOptions = Options{DispatchURL: "http://server", AgentImage: "agent:1"}

func testPool() *v1alpha1.RunnerPool {
	return &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bullpen-runners", Name: "linux-4", UID: "pool-uid"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{"linux-4"},
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("4"), Memory: resource.MustParse("16Gi")},
			Template:  v1alpha1.RunnerTemplate{Image: "runner:1"},
		},
	}
}

func container(t *testing.T, pod *corev1.Pod, name string) corev1.Container {
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no container %s", name)
	return corev1.Container{}
}

func TestBuild_POOL1_PodAndServiceAccountShareOneName(t *testing.T) {
	pod, account, err := Build(testPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, "linux-4-abcd1234", pod.Name)
	require.Equal(t, pod.Name, account.Name)
	require.Equal(t, pod.Name, pod.Spec.ServiceAccountName)
	require.Equal(t, pod.Namespace, account.Namespace)
	require.Equal(t, map[string]string{LabelRunner: "true", LabelPool: "linux-4"}, account.Labels)
	require.Equal(t, "linux-4", pod.Labels[LabelPool])
	require.NotEmpty(t, pod.Labels[LabelTemplateHash])
	for _, owners := range [][]metav1.OwnerReference{pod.OwnerReferences, account.OwnerReferences} {
		require.Len(t, owners, 1)
		require.Equal(t, "RunnerPool", owners[0].Kind)
		require.True(t, *owners[0].Controller)
		require.Nil(t, owners[0].BlockOwnerDeletion, "the API server would look up a kind that it may not know yet")
	}
	require.False(t, *account.AutomountServiceAccountToken)
	require.Equal(t, corev1.RestartPolicyNever, pod.Spec.RestartPolicy)
}

func TestBuild_NET3_OnlyThePollerMountsTheToken(t *testing.T) {
	pool := testPool()
	pool.Spec.Template.Volumes = []corev1.Volume{{Name: "cache"}}
	pool.Spec.Template.VolumeMounts = []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}}
	pod, _, err := Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	require.False(t, *pod.Spec.AutomountServiceAccountToken)
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		mounts := false
		for _, m := range c.VolumeMounts {
			mounts = mounts || m.Name == VolumeToken
		}
		require.Equal(t, c.Name == ContainerPoller, mounts, c.Name)
		for _, e := range c.Env {
			require.Equal(t, c.Name == ContainerPoller, mounts || e.Name == EnvTokenFile, "%s %s", c.Name, e.Name)
		}
	}
	require.Equal(t, "/cache", container(t, pod, ContainerRunner).VolumeMounts[2].MountPath)
}

func TestBuild_NET3_RefusesTemplatesThatReachForTheToken(t *testing.T) {
	for name, spoil := range map[string]func(*v1alpha1.RunnerTemplate){
		"mounts the token": func(r *v1alpha1.RunnerTemplate) {
			r.VolumeMounts = []corev1.VolumeMount{{Name: VolumeToken, MountPath: "/x"}}
		},
		"replaces the volume": func(r *v1alpha1.RunnerTemplate) { r.Volumes = []corev1.Volume{{Name: VolumeShared}} },
		"projects a token": func(r *v1alpha1.RunnerTemplate) {
			r.Volumes = []corev1.Volume{{Name: "mine", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}}
		},
		"mounts nothing": func(r *v1alpha1.RunnerTemplate) {
			r.VolumeMounts = []corev1.VolumeMount{{Name: "a", MountPath: "/cache"}}
		},
		"POOL-9 stays for a while": func(r *v1alpha1.RunnerTemplate) {
			r.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNotReady, TolerationSeconds: ptr.To[int64](300)}}
		},
		"hides the agent": func(r *v1alpha1.RunnerTemplate) {
			r.Volumes = []corev1.Volume{{Name: "a"}}
			r.VolumeMounts = []corev1.VolumeMount{{Name: "a", MountPath: "/bullpen"}}
		},
		"inside the directory": func(r *v1alpha1.RunnerTemplate) {
			r.Volumes = []corev1.Volume{{Name: "a"}}
			r.VolumeMounts = []corev1.VolumeMount{{Name: "a", MountPath: MountWork + "/x"}}
		},
		"sets our variable": func(r *v1alpha1.RunnerTemplate) { r.Env = []corev1.EnvVar{{Name: EnvSharedDir}} },
		"has no image":      func(r *v1alpha1.RunnerTemplate) { r.Image = "" },
	} {
		t.Run(name, func(t *testing.T) {
			pool := testPool()
			spoil(&pool.Spec.Template)
			_, _, err := Build(pool, testOptions, "abcd1234")
			var invalid *InvalidTemplateError
			require.ErrorAs(t, err, &invalid)
			require.Greater(t, len(err.Error()), 30, "a sentence")
		})
	}
}

func TestBuild_POOL9_KubernetesOwnKillersAreDisarmed(t *testing.T) {
	pool := testPool()
	pool.Spec.Template.Tolerations = []corev1.Toleration{{Key: "mine"}}
	pool.Spec.Template.PriorityClassName = "runners"
	pod, _, err := Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, "runners", pod.Spec.PriorityClassName)
	require.Equal(t, "true", pod.Annotations[AnnotationSafeToEvict], "R5: an idle runner holds no node, whatever its volumes and its owner are")
	require.NotContains(t, pod.Annotations, AnnotationDoNotDisrupt)
	require.EqualValues(t, 6*60*60, *pod.Spec.TerminationGracePeriodSeconds)
	for _, key := range []string{"mine", corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		found := false
		for _, toleration := range pod.Spec.Tolerations {
			found = found || toleration.Key == key && toleration.TolerationSeconds == nil
		}
		require.True(t, found, key)
	}
}

func TestBuild_CommandsNameEveryPath(t *testing.T) {
	pool := testPool()
	options := testOptions
	options.AgentCommand = "/opt/bullpen-agent"
	pod, _, err := Build(pool, options, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, []string{"/opt/bullpen-agent", "install", "--to", "/bullpen/shared/bullpen-agent"}, container(t, pod, ContainerAgent).Command)
	require.Equal(t, []string{"/bullpen/shared/bullpen-agent", "poll"}, container(t, pod, ContainerPoller).Command)
	runner := container(t, pod, ContainerRunner)
	require.Equal(t, []string{"/bullpen/shared/bullpen-agent", "run", "--", "/home/runner/bin/Runner.Listener", "run"}, runner.Command)
	require.Equal(t, runner.Resources.Requests, runner.Resources.Limits)
	require.Equal(t, []string{"/bullpen/shared/bullpen-agent", "idle"}, container(t, pod, ContainerIdle).Command)

	pool.Spec.Template.Command = []string{"bullpen", "dev", "runner"}
	pod, _, err = Build(pool, options, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, []string{"bullpen", "dev", "runner"}, container(t, pod, ContainerRunner).Command[3:])
}

// EXCL-4: what shows that no job has started costs no process every few seconds, and no Event for each busy runner.
func TestBuild_EXCL4_NoProbeOfARunnerOnLinux(t *testing.T) {
	for name, pool := range map[string]*v1alpha1.RunnerPool{"plain": testPool(), "with a daemon": dockerPool()} {
		pod, _, err := Build(pool, testOptions, "abcd1234")
		require.NoError(t, err, name)
		for _, c := range pod.Spec.Containers {
			require.Nil(t, c.ReadinessProbe, "%s: %s", name, c.Name)
			require.Nil(t, c.LivenessProbe, "%s: %s", name, c.Name)
			require.Nil(t, c.StartupProbe, "%s: %s", name, c.Name)
		}
		idle := container(t, pod, ContainerIdle)
		require.Equal(t, []corev1.EnvVar{{Name: EnvSharedDir, Value: MountShared}}, idle.Env, name)
		require.Equal(t, []corev1.VolumeMount{{Name: VolumeShared, MountPath: MountShared}}, idle.VolumeMounts, name)
	}
}

// A container runtime makes the directories that volumes are mounted in. Where a path to one leads through the binary
// itself, or would hide it, no container of the image starts.
func TestBuild_NoVolumeIsMountedWhereTheImageHasItsBinary(t *testing.T) {
	pod, _, err := Build(testPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, DefaultAgentCommand, container(t, pod, ContainerAgent).Command[0])
	for _, name := range []string{ContainerAgent, ContainerPoller, ContainerIdle} {
		c := container(t, pod, name)
		require.Equal(t, testOptions.AgentImage, c.Image)
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, name)
		require.NotEmpty(t, c.VolumeMounts)
		for _, m := range c.VolumeMounts {
			require.False(t, overlaps(m.MountPath, DefaultAgentCommand), "%s mounts %s at %s", name, m.Name, m.MountPath)
		}
	}
}

// Build only reads the pool: two pods built from it share nothing with it or with each other.
func TestBuild_KeepsNoPointerIntoThePool(t *testing.T) {
	pool := testPool()
	pool.Spec.Template.Env = append(make([]corev1.EnvVar, 0, 10), corev1.EnvVar{Name: "A"})
	pool.Spec.Template.Tolerations = append(make([]corev1.Toleration, 0, 10), corev1.Toleration{Key: "a"})
	pool.Spec.Template.Command = append(make([]string, 0, 10), "run")
	before := pool.DeepCopy()
	first, _, err := Build(pool, testOptions, "aaaaaaaa")
	require.NoError(t, err)
	copied := first.DeepCopy()
	second, _, err := Build(pool, testOptions, "bbbbbbbb")
	require.NoError(t, err)
	second.Labels["x"], second.Spec.Tolerations[0].Key = "y", "changed"
	second.Spec.Containers[0].Command[3] = "changed"
	require.Equal(t, before, pool)
	require.Equal(t, copied, first)
}

func TestTemplateHash(t *testing.T) {
	hash := func(change func(*v1alpha1.RunnerPool), options Options) string {
		pool := testPool()
		change(pool)
		h, err := TemplateHash(pool, options)
		require.NoError(t, err)
		return h
	}
	same := func(*v1alpha1.RunnerPool) {}
	base := hash(same, testOptions)
	for name, change := range map[string]func(*v1alpha1.RunnerPool){
		"replicas":        func(p *v1alpha1.RunnerPool) { p.Spec.Replicas = ptr.To[int32](7) },
		"labels":          func(p *v1alpha1.RunnerPool) { p.Spec.Labels = []string{"other"} },
		"another writing": func(p *v1alpha1.RunnerPool) { p.Spec.Resources.CPU = resource.MustParse("4000m") },
		"default command": func(p *v1alpha1.RunnerPool) { p.Spec.Template.Command = DefaultRunnerCommand },
	} {
		require.Equal(t, base, hash(change, testOptions), name)
	}
	for name, change := range map[string]func(*v1alpha1.RunnerPool){
		"image":  func(p *v1alpha1.RunnerPool) { p.Spec.Template.Image = "runner:2" },
		"memory": func(p *v1alpha1.RunnerPool) { p.Spec.Resources.Memory = resource.MustParse("8Gi") },
		"env":    func(p *v1alpha1.RunnerPool) { p.Spec.Template.Env = []corev1.EnvVar{{Name: "A"}} },
		"class":  func(p *v1alpha1.RunnerPool) { p.Spec.Template.PriorityClassName = "runners" },
	} {
		require.NotEqual(t, base, hash(change, testOptions), name)
	}
	require.NotEqual(t, base, hash(same, Options{DispatchURL: "http://server", AgentImage: "agent:2"}), "agent")
}

func TestOptionsValidate(t *testing.T) {
	require.NoError(t, testOptions.Validate())
	require.ErrorContains(t, Options{AgentImage: "a"}.Validate(), "dispatch URL")
	require.ErrorContains(t, Options{DispatchURL: "a"}.Validate(), "agent image")
}

func TestNewSuffix(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		suffix := NewSuffix()
		require.Len(t, suffix, 8)
		require.Empty(t, strings.Trim(suffix, suffixAlphabet))
		require.False(t, seen[suffix])
		seen[suffix] = true
	}
}

// The runner's name and the pod's UID are made from each other.
func TestRunnerName_CLAIM10_IsUniquePerMintAndShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uid := rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`).Draw(t, "uid")
		generation := rapid.Int64Range(1, 1<<62).Draw(t, "generation")
		name, err := RunnerName(uid, generation)
		require.NoError(t, err)
		require.LessOrEqual(t, len(name), 64)
		back, ok := PodUID(name)
		require.True(t, ok)
		require.Equal(t, uid, back)
		of, ok := Generation(name)
		require.True(t, ok)
		require.Equal(t, generation, of)
		other, err := RunnerName(uid, generation+1)
		require.NoError(t, err)
		require.NotEqual(t, name, other)
	})
}
