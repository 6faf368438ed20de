package runnerpod

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

func macPool() *v1alpha1.RunnerPool {
	pool := testPool()
	pool.Spec.Platform = v1alpha1.PlatformMacOS
	pool.Spec.Template.Image = "ghcr.io/cirruslabs/macos-sequoia-base:latest"
	pool.Spec.Template.RunAsUser = ptr.To[int64](1001) // the API server's default
	return pool
}

// macNode is a Mac with room for exactly two runners of macPool.
func macNode() *corev1.Node {
	return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: TaintMacOS, Effect: corev1.TaintEffectNoSchedule}}}}
}

func TestBuild_NODE5_AMacRunnerTakesOneSlotOfAMac(t *testing.T) {
	pool := macPool()
	pool.Spec.Template.NodeSelector = map[string]string{"fleet": "xcode"}
	pod, _, err := Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"fleet": "xcode", corev1.LabelOSStable: "darwin"}, pod.Spec.NodeSelector)
	require.True(t, slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == TaintMacOS && t.ToleratesTaint(klog.Logger{}, &macNode().Spec.Taints[0], false)
	}))
	runner := container(t, pod, ContainerRunner)
	one := runner.Resources.Limits[ResourceMacOSVM]
	require.EqualValues(t, 1, one.Value())
	require.Equal(t, runner.Resources.Requests, runner.Resources.Limits)

	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	require.EqualValues(t, 4000, requests.Cpu().MilliValue(), "two runners that have half a Mac each fit on it")
	require.EqualValues(t, 16<<30, requests.Memory().Value())
	slots := requests[ResourceMacOSVM]
	require.EqualValues(t, 1, slots.Value())
	require.NotContains(t, pool.Spec.Template.NodeSelector, corev1.LabelOSStable, "Build keeps no pointer into the pool")
}

// A Mac has one program, and its node agent, of this release or of the one before, starts itself for this path. So,
// independently of the controller's flags, pods for Macs start nothing that a Mac lacks.
func TestBuild_AMacPodStartsTheOneProgramOfAMac(t *testing.T) {
	options := testOptions
	options.AgentCommand = "/opt/bullpen-agent"
	pod, _, err := Build(macPool(), options, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, []string{"/usr/local/bin/bullpen", "agent", "install", "--to", "/bullpen/shared/bullpen"}, container(t, pod, ContainerAgent).Command)
	require.Equal(t, []string{"/bullpen/shared/bullpen", "agent", "poll"}, container(t, pod, ContainerPoller).Command)
	runner := container(t, pod, ContainerRunner)
	require.Equal(t, append([]string{"/bullpen/shared/bullpen", "agent", "run", "--"}, DefaultMacRunnerCommand...), runner.Command)
	require.Equal(t, []string{"/bullpen/shared/bullpen", "agent", "ready"}, runner.ReadinessProbe.Exec.Command)
	require.EqualValues(t, 1, runner.ReadinessProbe.FailureThreshold)
	require.False(t, slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == ContainerIdle }), "earlier node agents would not know it")
}

func TestBuild_AMacPodHasNothingThatMeansNothingThere(t *testing.T) {
	pod, _, err := Build(macPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	require.Nil(t, pod.Spec.SecurityContext)
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		require.Nil(t, c.SecurityContext, c.Name)
		mounts := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == VolumeToken })
		require.Equal(t, c.Name == ContainerPoller, mounts, "NET-3: %s", c.Name)
	}
	require.Equal(t, "/Users/admin/actions-runner/bin/Runner.Listener", container(t, pod, ContainerRunner).Command[4])
	own := macPool()
	own.Spec.Template.Command = []string{"/opt/runner"}
	pod, _, err = Build(own, testOptions, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, "/opt/runner", container(t, pod, ContainerRunner).Command[4])
}

func TestBuild_AMacPoolIsRefusedWhatMacsDoNotHave(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*v1alpha1.RunnerPool)
		want  string
	}{
		"a Docker daemon": {func(p *v1alpha1.RunnerPool) { p.Spec.Template.Dind = &v1alpha1.Dind{} }, "spec.template.dind"},
		"a runtime class": {func(p *v1alpha1.RunnerPool) { p.Spec.Template.RuntimeClassName = ptr.To("kata") }, "spec.template.runtimeClassName"},
		"volumes": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.Volumes = []corev1.Volume{{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}, "spec.template.volumes"},
		"Linux nodes": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
		}, "spec.template.nodeSelector"},
		"half a CPU": {func(p *v1alpha1.RunnerPool) { p.Spec.Resources.CPU = apiresource.MustParse("3500m") }, "spec.resources.cpu"},
	} {
		pool := macPool()
		c.spoil(pool)
		_, _, err := Build(pool, testOptions, "abcd1234")
		var invalid *InvalidTemplateError
		require.ErrorAs(t, err, &invalid, name)
		require.ErrorContains(t, err, c.want, name)
	}
	for _, cpu := range []string{"4", "4000m"} {
		pool := macPool()
		pool.Spec.Resources.CPU = apiresource.MustParse(cpu)
		_, _, err := Build(pool, testOptions, "abcd1234")
		require.NoError(t, err)
	}
}

// An upgrade of the controller rolls no pool of Linux runners: their pods and hashes are what they were before there were Macs.
func TestTemplateHash_LinuxPodsAreWhatTheyWere(t *testing.T) {
	hash, err := TemplateHash(testPool(), testOptions)
	require.NoError(t, err)
	require.Equal(t, "15308da5d7561f5c", hash)
	pod, _, err := Build(testPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	require.Empty(t, pod.Spec.NodeSelector, "docs/adr/0023")
	require.Len(t, pod.Spec.Tolerations, 2)
	require.NotContains(t, container(t, pod, ContainerRunner).Resources.Limits, corev1.ResourceName(ResourceMacOSVM))

	mac, err := TemplateHash(macPool(), testOptions)
	require.NoError(t, err)
	linux := macPool()
	linux.Spec.Platform = v1alpha1.PlatformLinux
	other, err := TemplateHash(linux, testOptions)
	require.NoError(t, err)
	require.NotEqual(t, mac, other)
}

func TestFleet_OfMacsIsOneWhetherTheSelectorSaysSoOrNot(t *testing.T) {
	said := macPool()
	said.Spec.Template.NodeSelector = map[string]string{corev1.LabelOSStable: "darwin"}
	unsaid := macPool()
	unsaid.Spec.Template.NodeSelector = map[string]string{}
	a, err := Fleet(said)
	require.NoError(t, err)
	b, err := Fleet(unsaid)
	require.NoError(t, err)
	require.Equal(t, a, b)
	c, err := Fleet(testPool())
	require.NoError(t, err)
	require.NotEqual(t, a, c)
}

// A Mac resolves no name of the cluster's: its poller gets a URL of its own. Where that cannot be so, the pool says what is missing, and takes
// no slot of a Mac.
func TestBuild_AMacPollsAURLThatMacsReach(t *testing.T) {
	pollsAt := func(pool *v1alpha1.RunnerPool, options Options) string {
		t.Helper()
		pod, _, err := Build(pool, options, "abcd1234")
		require.NoError(t, err)
		env := container(t, pod, ContainerPoller).Env
		i := slices.IndexFunc(env, func(v corev1.EnvVar) bool { return v.Name == EnvDispatchURL })
		require.GreaterOrEqual(t, i, 0)
		return env[i].Value
	}
	cluster := testOptions
	for _, only := range []string{"http://bullpen-dispatch.bullpen-system.svc", "http://d.s.svc:80/", "https://D.S.SVC.cluster.local."} {
		cluster.DispatchURL = only
		require.Equal(t, only, pollsAt(testPool(), cluster))
		_, _, err := Build(macPool(), cluster, "abcd1234")
		var invalid *InvalidTemplateError
		require.ErrorAs(t, err, &invalid, only)
		require.ErrorContains(t, err, "macHosts.dispatchURL")
	}
	require.Equal(t, testOptions.DispatchURL, pollsAt(macPool(), testOptions), "without one, the URL of all runners")
	both := cluster
	both.MacDispatchURL = "https://dispatch.example.com"
	require.Equal(t, both.DispatchURL, pollsAt(testPool(), both))
	require.Equal(t, both.MacDispatchURL, pollsAt(macPool(), both))
	both.MacDispatchURL = both.DispatchURL
	require.Equal(t, both.DispatchURL, pollsAt(macPool(), both), "a set URL is not judged: Macs may have the name in their hosts file")
}

// A changed URL of Macs replaces the idle runners on Macs, and no others.
func TestTemplateHash_AURLOfMacsRollsPoolsOfMacs(t *testing.T) {
	hash := func(pool *v1alpha1.RunnerPool, url string) string {
		t.Helper()
		options := testOptions
		options.MacDispatchURL = url
		got, err := TemplateHash(pool, options)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, hash(testPool(), ""), hash(testPool(), "https://dispatch.example.com"))
	require.NotEqual(t, hash(macPool(), ""), hash(macPool(), "https://dispatch.example.com"))
	require.Equal(t, hash(macPool(), ""), hash(macPool(), testOptions.DispatchURL))
}
