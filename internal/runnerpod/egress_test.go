package runnerpod

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

var behindProxy = Egress{
	HTTPProxy: Proxy{URL: "http://proxy:3128"}, HTTPSProxy: Proxy{From: SecretKey{"proxy", "https"}}, NoProxy: "localhost,.svc", CA: SecretKey{"github-ca", "ca.crt"},
}

func through(e Egress) Options {
	options := testOptions
	options.Egress = &e
	return options
}

func variables(c corev1.Container) map[string]corev1.EnvVar {
	found := map[string]corev1.EnvVar{}
	for _, e := range c.Env {
		found[e.Name] = e
	}
	return found
}

// requireEgress checks a container in which jobs run.
func requireEgress(t *testing.T, pod *corev1.Pod, c corev1.Container) {
	t.Helper()
	env := variables(c)
	require.Len(t, c.Env, len(env), "no variable is there twice")
	for _, name := range []string{"HTTPS_PROXY", "https_proxy"} {
		require.Empty(t, env[name].Value)
		require.Equal(t, "proxy", env[name].ValueFrom.SecretKeyRef.Name, "the URL holds a password")
		require.Equal(t, "https", env[name].ValueFrom.SecretKeyRef.Key)
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy"} {
		require.Equal(t, "http://proxy:3128", env[name].Value)
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		require.Equal(t, "localhost,.svc", env[name].Value)
	}
	require.Equal(t, "/bullpen/github-ca/ca.crt", env[EnvCAFile].Value)
	require.Contains(t, c.VolumeMounts, corev1.VolumeMount{Name: VolumeCA, MountPath: MountCA, ReadOnly: true})
	require.Contains(t, pod.Spec.Volumes, behindProxy.volume())
}

// R7: the way to GitHub is the runner's, in both cases that tools look for, and no other container's: the poller reaches the server alone.
func TestBuild_R7_NET12_RunnersUseTheProxyAndTrustTheCA(t *testing.T) {
	pod, _, err := Build(testPool(), through(behindProxy), "abcd1234")
	require.NoError(t, err)
	requireEgress(t, pod, container(t, pod, ContainerRunner))
	for _, name := range []string{ContainerAgent, ContainerPoller} {
		for variable := range variables(container(t, pod, name)) {
			require.NotContains(t, strings.ToUpper(variable), "PROXY", name)
		}
		require.NotContains(t, container(t, pod, name).VolumeMounts, mountCA(), name)
	}

	plain, _, err := Build(testPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	none, _, err := Build(testPool(), through(Egress{}), "abcd1234")
	require.NoError(t, err)
	require.Equal(t, plain.Spec, none.Spec)

	alone, _, err := Build(testPool(), through(Egress{NoProxy: ".svc", CA: behindProxy.CA}), "abcd1234")
	require.NoError(t, err)
	require.NotContains(t, variables(container(t, alone, ContainerRunner)), "NO_PROXY", "there is nothing to except from")
}

// A pool chooses another proxy, or none, by its own variables, in any case of letters.
func TestBuild_R7_ATemplatesOwnProxyWins(t *testing.T) {
	pool := testPool()
	pool.Spec.Template.Env = []corev1.EnvVar{{Name: "https_proxy", Value: "http://other:3128"}, {Name: "HTTP_PROXY"}}
	pod, _, err := Build(pool, through(behindProxy), "abcd1234")
	require.NoError(t, err)
	env := variables(container(t, pod, ContainerRunner))
	require.Equal(t, "http://other:3128", env["https_proxy"].Value)
	require.NotContains(t, env, "HTTPS_PROXY")
	require.Nil(t, env["HTTP_PROXY"].ValueFrom)
	require.NotContains(t, env, "http_proxy")
	require.Contains(t, env, "NO_PROXY")

	pool.Spec.Template.Volumes = []corev1.Volume{{Name: "own"}}
	pool.Spec.Template.VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: MountCA}}
	_, _, err = Build(pool, through(behindProxy), "abcd1234")
	require.ErrorContains(t, err, "overlaps the pod's own")
}

func TestBuild_R7_ADockerDaemonPullsThatWay(t *testing.T) {
	pool := testPool()
	pool.Spec.Template.RuntimeClassName, pool.Spec.Template.Dind = ptr.To("kata"), &v1alpha1.Dind{}
	pod, _, err := Build(pool, through(behindProxy), "abcd1234")
	require.NoError(t, err)
	requireEgress(t, pod, container(t, pod, ContainerRunner))
	daemon := container(t, pod, ContainerDind)
	require.Contains(t, variables(daemon), "HTTPS_PROXY")
	require.Equal(t, MountCA+"/ca.crt", variables(daemon)["SSL_CERT_FILE"].Value)
	require.Contains(t, daemon.VolumeMounts, mountCA())
}

// A virtual machine has the proxy, and no volume of the cluster's.
func TestBuild_R7_MacsUseTheProxy(t *testing.T) {
	pool := testPool()
	pool.Spec.Platform = v1alpha1.PlatformMacOS
	pod, _, err := Build(pool, through(behindProxy), "abcd1234")
	require.NoError(t, err)
	env := variables(container(t, pod, ContainerRunner))
	require.Contains(t, env, "https_proxy")
	require.NotContains(t, env, EnvCAFile)
	for _, v := range pod.Spec.Volumes {
		require.NotEqual(t, VolumeCA, v.Name)
	}
}

func TestBuildRegistered_R7_RUN5_UseTheProxyHoweverOftenTheyAreBuilt(t *testing.T) {
	for name, mode := range map[string]func(*v1alpha1.RunnerSpec){"none": func(*v1alpha1.RunnerSpec) {}, "static": static, "dind": dind, "kubernetes": kubernetes} {
		t.Run(name, func(t *testing.T) {
			r := registered(registeredSpec(mode))
			pod, err := BuildRegistered(r, through(behindProxy))
			require.NoError(t, err)
			requireEgress(t, pod, container(t, pod, ContainerRunner))
			if name == "dind" {
				require.Contains(t, variables(container(t, pod, ContainerDind)), "SSL_CERT_FILE")
			}
			twice, err := BuildRegistered(again(r, pod), through(behindProxy))
			require.NoError(t, err)
			require.Equal(t, pod.Spec, twice.Spec)
			other := behindProxy
			other.CA = SecretKey{"another", "ca.crt"}
			changed, err := BuildRegistered(again(r, pod), through(other))
			require.NoError(t, err)
			require.Contains(t, changed.Spec.Volumes, other.volume())
			require.NotContains(t, changed.Spec.Volumes, behindProxy.volume())
		})
	}
	own, err := BuildRegistered(registered(registeredSpec(func(s *v1alpha1.RunnerSpec) {
		s.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "https_proxy", Value: "http://other:3128"}}
	})), through(behindProxy))
	require.NoError(t, err)
	env := variables(container(t, own, ContainerRunner))
	require.NotContains(t, env, "HTTPS_PROXY")
	require.Equal(t, "http://other:3128", env["https_proxy"].Value)
}

// A changed proxy replaces idle runners; without one pods are as good as those of earlier releases.
func TestHashes_R7_ChangeWithTheEgressAlone(t *testing.T) {
	spec := registeredSpec()
	seen := map[string]string{}
	for name, options := range map[string]Options{
		"none": testOptions, "a proxy": through(Egress{HTTPSProxy: Proxy{URL: "http://proxy:3128"}}), "another": through(Egress{HTTPSProxy: Proxy{URL: "http://proxy:3129"}}),
		"of http": through(Egress{HTTPProxy: Proxy{URL: "http://proxy:3128"}}), "a Secret": through(Egress{HTTPSProxy: Proxy{From: SecretKey{"a", "b"}}}),
		"a CA": through(Egress{CA: SecretKey{"a", "b"}}), "an exception": through(Egress{HTTPSProxy: Proxy{URL: "http://proxy:3128"}, NoProxy: "a"}),
	} {
		pool, err := TemplateHash(testPool(), options)
		require.NoError(t, err)
		own, err := RegisteredHash(spec, options)
		require.NoError(t, err)
		for _, hash := range []string{pool, own} {
			require.Empty(t, seen[hash], "%s hashes as another", name)
			seen[hash] = name
		}
	}
}
