package runnerpod

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// The CA of GitHub's certificate in a runner's pod.
const (
	VolumeCA = "bullpen-github-ca"
	MountCA  = "/bullpen/github-ca"
	fileCA   = "ca.crt"
)

// Egress is how runners connect to GitHub and the internet where a proxy or a private CA is on the way. Secrets are those of the runners'
// namespace. The zero value is a direct connection.
type Egress struct {
	// HTTPProxy and HTTPSProxy are the proxies for http and https.
	HTTPProxy  Proxy `json:",omitzero"`
	HTTPSProxy Proxy `json:",omitzero"`
	// NoProxy lists what is connected to directly, separated by commas.
	NoProxy string `json:",omitempty"`
	// CA holds certificates (PEM) that may sign GitHub's. Pods for Macs do not have it: the image of the virtual machine must trust it.
	CA SecretKey `json:",omitzero"`
}

// Proxy is the URL of a proxy. One that holds a password is in a Secret: what a pod says is shown to all who may read pods.
type Proxy struct {
	URL  string    `json:",omitempty"`
	From SecretKey `json:",omitzero"`
}

// SecretKey is one value of a Secret.
type SecretKey struct{ Secret, Key string }

// proxyVariables pairs the names of each variable: tools disagree about their case.
func (e *Egress) proxyVariables() []corev1.EnvVar {
	var env []corev1.EnvVar
	put := func(name string, proxy Proxy) {
		for _, name := range []string{name, strings.ToLower(name)} {
			switch {
			case proxy.From != SecretKey{}:
				env = append(env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: proxy.From.Secret}, Key: proxy.From.Key,
				}}})
			case proxy.URL != "":
				env = append(env, corev1.EnvVar{Name: name, Value: proxy.URL})
			}
		}
	}
	put("HTTP_PROXY", e.HTTPProxy)
	put("HTTPS_PROXY", e.HTTPSProxy)
	if len(env) > 0 {
		put("NO_PROXY", Proxy{URL: e.NoProxy})
	}
	return env
}

// variables are those of a container that does not choose its own. A variable of the template wins in both cases: of two that differ, each
// tool would take another.
func (e *Egress) variables(own []corev1.EnvVar) []corev1.EnvVar {
	return slices.DeleteFunc(e.proxyVariables(), func(ours corev1.EnvVar) bool {
		return slices.ContainsFunc(own, func(theirs corev1.EnvVar) bool { return strings.EqualFold(theirs.Name, ours.Name) })
	})
}

func (e *Egress) trustsCA() bool { return e.CA != SecretKey{} }

func (e *Egress) volume() corev1.Volume {
	return corev1.Volume{Name: VolumeCA, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: e.CA.Secret, DefaultMode: ptr.To[int32](0o444), // certificates are public, and images run as any user
		Items: []corev1.KeyToPath{{Key: e.CA.Key, Path: fileCA}},
	}}}
}

func mountCA() corev1.VolumeMount {
	return corev1.VolumeMount{Name: VolumeCA, MountPath: MountCA, ReadOnly: true}
}

// variableCA names the CA to the supervisor, which adds it to what the image trusts.
func variableCA() corev1.EnvVar { return corev1.EnvVar{Name: EnvCAFile, Value: MountCA + "/" + fileCA} }

// addTo has the runner of a pool's pod, and its Docker daemon, connect that way.
func (e *Egress) addTo(spec *corev1.PodSpec, platform v1alpha1.Platform) {
	if e == nil {
		return
	}
	trust := e.trustsCA() && platform != v1alpha1.PlatformMacOS
	if trust {
		spec.Volumes = append(spec.Volumes, e.volume())
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if c.Name != ContainerRunner {
			continue
		}
		c.Env = append(e.variables(c.Env), c.Env...) // first: the template's may refer to them
		if trust {
			c.Env = append([]corev1.EnvVar{variableCA()}, c.Env...)
			c.VolumeMounts = append(c.VolumeMounts, mountCA())
		}
	}
	e.addToDaemon(named(spec.InitContainers, ContainerDind))
	e.addToDaemon(named(spec.Containers, ContainerBuildKit))
}

// addToDaemon has a daemon pull images that way. It reads the file beside the certificates of its image.
func (e *Egress) addToDaemon(daemon *corev1.Container) {
	if daemon == nil {
		return
	}
	daemon.Env = append(daemon.Env, e.variables(daemon.Env)...)
	if e.trustsCA() {
		daemon.Env = append(daemon.Env, corev1.EnvVar{Name: "SSL_CERT_FILE", Value: MountCA + "/" + fileCA})
		daemon.VolumeMounts = append(daemon.VolumeMounts, mountCA())
	}
}

// addToRegistered is addTo for a runner that registers itself.
func (e *Egress) addToRegistered(a *additions, runner *corev1.Container) {
	if e == nil {
		return
	}
	a.absent = append(a.absent, e.variables(runner.Env)...)
	e.addToDaemon(named(a.first, ContainerDind))
	e.addToDaemon(named(a.beside, ContainerBuildKit))
	if e.trustsCA() {
		a.volumes = append(a.volumes, e.volume())
		a.mounts = append(a.mounts, mountCA())
		a.set = append(a.set, variableCA())
	}
}
