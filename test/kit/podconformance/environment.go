package podconformance

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The rules are in "Define Dependent Environment Variables", in the comments of the API's EnvVar and EnvFromSource, and in the kubelet's
// makeEnvironmentVariables: Services first, then envFrom in order, then env in order. A reference sees what comes before it.
var environment = []row{
	{
		name: "Env/Expansion", fact: "`$(NAME)` is replaced by an earlier variable, `$$(NAME)` becomes `$(NAME)`, an unknown name stays",
		run: func(t *T) {
			t.variables(map[string]string{
				"A": "1", "REF": "x1y", "ESCAPED": "$(A)", "LATER": "$(LAST)", "OF_FROM": "first", "NOT_AGAIN": "$(A)", "OPEN": "$(A", "DOLLARS": "$$1", "LAST": "z",
			}, inMain(func(c *corev1.Container) {
				c.EnvFrom = []corev1.EnvFromSource{from("first", "FROM_")}
				c.Env = values("A", "1", "REF", "x$(A)y", "ESCAPED", "$$(A)", "LATER", "$(LAST)", "OF_FROM", "$(FROM_A)", "NOT_AGAIN", "$(ESCAPED)",
					"OPEN", "$(A", "DOLLARS", "$$$$$(A)", "LAST", "z")
			}))
		},
	},
	{
		name: "Env/Order", fact: "a later `envFrom` overrides an earlier one, and `env` overrides both",
		run: func(t *T) {
			t.variables(map[string]string{"A": "own", "B": "second", "P_A": "first"}, inMain(func(c *corev1.Container) {
				c.EnvFrom = []corev1.EnvFromSource{from("first", ""), from("second", ""), from("first", "P_")}
				c.Env = values("A", "own")
			}))
		},
	},
	{
		// Since 1.34 any printable key but one with "=" becomes a variable (RelaxedEnvironmentVariableValidation).
		name: "Env/KeysOfAnyName", fact: "`envFrom` also takes keys that no shell could name",
		run: func(t *T) {
			t.variables(map[string]string{"1st.key-x": "odd"}, inMain(func(c *corev1.Container) { c.EnvFrom = []corev1.EnvFromSource{from("second", "")} }))
		},
	},
	{
		name: "Env/Optional", fact: "an optional reference that leads nowhere sets no variable",
		run: func(t *T) {
			t.variables(map[string]string{"SET": "s3cret"}, inMain(func(c *corev1.Container) {
				none := from("none", "")
				none.ConfigMapRef.Optional = ptr.To(true)
				c.EnvFrom = []corev1.EnvFromSource{none}
				c.Env = []corev1.EnvVar{
					{Name: "SET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("secret"), Key: "password"}}},
					{Name: "UNSET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("secret"), Key: "none", Optional: ptr.To(true)}}},
				}
			}))
		},
	},
	{
		name: "Env/MissingKeyIsAwaited", fact: "a container waits as `CreateContainerConfigError` for a key that does not exist",
		run: func(t *T) {
			p := t.run("true", inMain(func(c *corev1.Container) {
				c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("config"), Key: "none"}}}}
			}))
			pod := p.await("waiting", func(pod *corev1.Pod) bool {
				return ended(pod) || waiting(pod, "main").Reason == "CreateContainerConfigError"
			})
			require.Contains(t, waiting(pod, "main").Message, "none")
		},
	},
	{
		name: "Env/Fields", fact: "`fieldRef` reads name, namespace, UID, labels, annotations, node and addresses",
		run: func(t *T) {
			p := t.create([]corev1.Container{{Name: "main", Command: []string{"env"}}}, annotated, inMain(func(c *corev1.Container) {
				for name, path := range map[string]string{
					"NAME": "metadata.name", "NAMESPACE": "metadata.namespace", "ID": "metadata.uid", "LABEL": "metadata.labels['team']",
					"NOTE": "metadata.annotations['note']", "NODE": "spec.nodeName", "ACCOUNT": "spec.serviceAccountName",
					"POD_IP": "status.podIP", "POD_IPS": "status.podIPs", "HOST_IP": "status.hostIP", "HOST_IPS": "status.hostIPs",
				} {
					c.Env = append(c.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}})
				}
			}))
			got, pod := parse(p.output()), p.awaitEnd()
			t.contains(map[string]string{
				"NAME": pod.Name, "NAMESPACE": pod.Namespace, "ID": string(pod.UID), "LABEL": "red", "NOTE": "two words", "NODE": t.env.Node, "ACCOUNT": "default",
				"POD_IP": pod.Status.PodIP, "POD_IPS": pod.Status.PodIP, "HOST_IP": pod.Status.HostIP, "HOST_IPS": pod.Status.HostIP,
			}, got)
			require.NotEmpty(t, pod.Status.PodIP)
			require.NotEmpty(t, pod.Status.HostIP)
		},
	},
	{
		name: "Env/Resources", fact: "`resourceFieldRef` divides by `divisor` and rounds up",
		run: func(t *T) {
			t.variables(map[string]string{"CPU": "250", "CORES": "1", "MEMORY": "33", "BYTES": "34603008"}, inMain(func(c *corev1.Container) {
				c.Resources = corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("33Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
				}
				c.Env = []corev1.EnvVar{
					amount("CPU", "limits.cpu", "1m"), amount("CORES", "limits.cpu", "0"),
					amount("MEMORY", "requests.memory", "1Mi"), amount("BYTES", "requests.memory", "0"),
				}
			}))
		},
	},
	{
		name: "Env/UnsetLimits", fact: "a limit that is not set is what the node can allocate",
		run: func(t *T) {
			t.variables(map[string]string{"CPU": strconv.FormatInt(t.node.Status.Allocatable.Cpu().Value(), 10)}, inMain(func(c *corev1.Container) {
				c.Env = []corev1.EnvVar{amount("CPU", "limits.cpu", "0")}
			}))
		},
	},
	{
		name: "Env/CommandAndArgs", fact: "`command` and `args` are expanded, without a shell",
		run: func(t *T) {
			p := t.create([]corev1.Container{{
				Name: "main", Command: []string{"printf", `%s\n`, "$(A)"}, Args: []string{"$$(A)", "$(NONE)", "$HOME", "two words"}, Env: values("A", "1"),
			}})
			require.Equal(t, "1\n$(A)\n$(NONE)\n$HOME\ntwo words\n", p.output())
		},
	},
	{
		// The kubelet reads the Service default/kubernetes, also for pods without service links (getServiceEnvVarMap).
		name: "Env/KubernetesService", fact: "`KUBERNETES_SERVICE_HOST` and `_PORT` are always set",
		run: func(t *T) {
			service, err := t.env.Kube.CoreV1().Services("default").Get(t.ctx, "kubernetes", metav1.GetOptions{})
			require.NoError(t, err)
			t.variables(map[string]string{"KUBERNETES_SERVICE_HOST": service.Spec.ClusterIP, "KUBERNETES_SERVICE_PORT": "443", "WEB_SERVICE_HOST": "-"}, nil)
		},
	},
	{
		name: "Env/ServiceLinks", fact: "each Service of the namespace has variables, unless `enableServiceLinks` is false",
		run: func(t *T) {
			service, err := t.env.Kube.CoreV1().Services(t.namespace).Get(t.ctx, "web", metav1.GetOptions{})
			require.NoError(t, err)
			t.variables(map[string]string{"WEB_SERVICE_HOST": service.Spec.ClusterIP, "WEB_PORT_80_TCP_PORT": "80"},
				func(pod *corev1.Pod) { pod.Spec.EnableServiceLinks = ptr.To(true) })
		},
	},
}

// variables requires variables of a container; "-" stands for one that is not set. The program is env: a shell drops names that it cannot use.
func (t *T) variables(want map[string]string, c change) {
	if c == nil {
		c = func(*corev1.Pod) {}
	}
	t.contains(want, parse(t.create([]corev1.Container{{Name: "main", Command: []string{"env"}}}, c).output()))
}

func (t *T) contains(want, got map[string]string) {
	for name, value := range want {
		has, set := got[name]
		if !set {
			has = "-"
		}
		if has != value {
			t.Errorf("%s is %q, want %q", name, has, value)
		}
	}
}

// parse reads the output of env.
func parse(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			all[name] = value
		}
	}
	return all
}

// values are variables from pairs of name and value.
func values(pairs ...string) []corev1.EnvVar {
	var all []corev1.EnvVar
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, corev1.EnvVar{Name: pairs[i], Value: pairs[i+1]})
	}
	return all
}

func from(configMap, prefix string) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named(configMap)}}
}

func amount(name, of, divisor string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: of, Divisor: resource.MustParse(divisor)}}}
}

var processes = []row{
	{
		name: "Process/WorkingDir", fact: "`workingDir` is the program's directory",
		run: func(t *T) {
			t.prints("/usr/bin", "pwd", inMain(func(c *corev1.Container) { c.WorkingDir = "/usr/bin" }))
		},
	},
	{
		// runc creates the directory in the container's root.
		name: "Process/WorkingDirIsCreated", fact: "a `workingDir` that the image does not have is created",
		run: func(t *T) {
			t.prints("/made/here", "pwd", inMain(func(c *corev1.Container) { c.WorkingDir = "/made/here" }))
		},
	},
	{
		name: "Process/Hostname", fact: "the host name is the pod's name",
		run: func(t *T) {
			p := t.run("cat /proc/sys/kernel/hostname")
			require.Equal(t, p.pod.Name+"\n", p.output())
		},
	},
	{
		name: "Process/HostsFile", fact: "`/etc/hosts` has the pod's address and name",
		run: func(t *T) {
			p := t.run("while read -r address name rest; do echo \"$address $name\"; done < /etc/hosts")
			text, pod := p.output(), p.awaitEnd()
			require.Contains(t, text, fmt.Sprintf("%s %s\n", pod.Status.PodIP, pod.Name))
		},
	},
	{
		name: "Process/PostStart", fact: "a `postStart` hook runs beside the program, and the container runs when it is over",
		run: func(t *T) {
			p := t.run("while [ ! -e /shared/hook ]; do sleep 0.1; done", shared, inMain(func(c *corev1.Container) {
				c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"touch", "/shared/hook"}}}}
			}))
			p.output()
		},
	},
	{
		name: "Process/PIDOne", fact: "a container's program is process 1",
		run: func(t *T) { t.prints("1", `echo $$$$`) },
	},
}

// The rules of subPath are in "Volumes" (Using subPath, Using subPath with expanded environment variables) and in makeMounts.
var mounts = []row{
	{
		name: "Mounts/ReadOnly", fact: "a mount with `readOnly` cannot be written to",
		run: func(t *T) {
			t.prints("read-only", "touch /shared/x 2>/dev/null || echo read-only", shared, inMain(func(c *corev1.Container) { c.VolumeMounts[0].ReadOnly = true }))
		},
	},
	{
		name: "Mounts/SubPathIsCreated", fact: "a `subPath` that does not exist becomes a directory with the volume's mode",
		run: func(t *T) {
			t.prints("777 0 0\na/b/new", stat("/part")+`; touch /part/new; cd /shared; echo a/b/*`, shared, secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345)}),
				inMain(func(c *corev1.Container) {
					c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "shared", MountPath: "/part", SubPath: "a/b"})
				}))
		},
	},
	{
		name: "Mounts/SubPathFile", fact: "a `subPath` may be one key of a ConfigMap",
		run: func(t *T) {
			t.prints("value", "cat /etc/one", mounted("v", "/etc/one", config(nil)), inMain(func(c *corev1.Container) { c.VolumeMounts[0].SubPath = "key" }))
		},
	},
	{
		name: "Mounts/SubPathExpr", fact: "`subPathExpr` expands variables of the container",
		run: func(t *T) {
			t.prints("of-red", "touch /part/new; cd /shared; echo *", shared, annotated, inMain(func(c *corev1.Container) {
				c.Env = []corev1.EnvVar{{Name: "TEAM", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['team']"}}}}
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "shared", MountPath: "/part", SubPathExpr: "of-$(TEAM)"})
			}))
		},
	},
	{
		name: "Mounts/SubPathExprUnset", fact: "`subPathExpr` with an unset variable keeps the container waiting as `CreateContainerConfigError`",
		run: func(t *T) {
			p := t.run("true", shared, inMain(func(c *corev1.Container) { c.VolumeMounts[0].SubPathExpr = "of-$(NONE)" }))
			pod := p.await("waiting", func(pod *corev1.Pod) bool {
				return ended(pod) || waiting(pod, "main").Reason == "CreateContainerConfigError"
			})
			require.Contains(t, waiting(pod, "main").Message, "NONE")
		},
	},
	{
		// containerd sorts mounts by the number of their path's elements.
		name: "Mounts/Nested", fact: "a mount inside another is visible, in whichever order they are listed",
		run: func(t *T) {
			t.prints("value\nouter", "cat /shared/inner/key; echo; touch /shared/outer; cd /shared; echo o*", mounted("v", "/shared/inner", config(nil)), shared)
		},
	},
}
