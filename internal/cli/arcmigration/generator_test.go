package arcmigration_test

import (
	"fmt"

	"pgregory.net/rapid"
)

// generator makes objects as actions-runner-controller's schemas say. Each text that may be anything occurs once, so that it can
// be found again.
type generator struct {
	t      *rapid.T
	n      int
	looked int
}

type mapping = map[string]any

func (g *generator) marker() string {
	g.n++
	return fmt.Sprintf("m%04dz", g.n)
}

func (g *generator) coin(label string) bool { return rapid.Bool().Draw(g.t, label) }

func (g *generator) pick(label string, of ...any) any { return rapid.SampledFrom(of).Draw(g.t, label) }

// some gives into a part of the fields.
func (g *generator) some(into mapping, fields map[string]func() any) {
	for _, name := range rapid.Permutation(names(fields)).Draw(g.t, "fields")[:rapid.IntRange(0, len(fields)).Draw(g.t, "how many")] {
		into[name] = fields[name]()
	}
}

func names(fields map[string]func() any) []string {
	var found []string
	for name := range fields {
		found = append(found, name)
	}
	// The order of a map is another each time, and rapid wants the same.
	for i := range found {
		for j := i; j > 0 && found[j] < found[j-1]; j-- {
			found[j], found[j-1] = found[j-1], found[j]
		}
	}
	return found
}

func (g *generator) object() mapping {
	switch g.pick("kind", "Runner", "RunnerReplicaSet", "RunnerDeployment", "RunnerSet", "pool", "dind", "hooks") {
	case "Runner":
		return g.legacy("Runner", g.runner())
	case "RunnerReplicaSet":
		return g.legacy("RunnerReplicaSet", g.owner())
	case "RunnerDeployment":
		return g.legacy("RunnerDeployment", g.owner())
	case "RunnerSet":
		return g.legacy("RunnerSet", g.runnerSet())
	case "dind":
		return g.scaleSet("dind")
	case "hooks":
		return g.scaleSet("hooks")
	}
	return g.scaleSet("")
}

func (g *generator) legacy(kind string, spec mapping) mapping {
	return mapping{"apiVersion": "actions.summerwind.dev/v1alpha1", "kind": kind, "metadata": g.meta(), "spec": spec}
}

func (g *generator) meta() mapping {
	meta := mapping{"name": g.marker(), "namespace": "ci"}
	g.some(meta, map[string]func() any{
		"labels":            func() any { return mapping{"team": g.marker(), "helm.sh/chart": g.marker()} },
		"annotations":       func() any { return mapping{"note": g.marker(), "meta.helm.sh/release-name": g.marker()} },
		"uid":               func() any { return g.marker() },
		"finalizers":        func() any { return []any{g.marker()} },
		"creationTimestamp": func() any { return nil },
	})
	return meta
}

func (g *generator) owner() mapping {
	template := mapping{"spec": g.runner()}
	if g.coin("template metadata") {
		template["metadata"] = mapping{"labels": mapping{"app": g.marker()}, "name": g.marker()}
	}
	spec := mapping{"template": template}
	g.some(spec, map[string]func() any{
		"replicas":      func() any { return rapid.IntRange(0, 50).Draw(g.t, "replicas") },
		"effectiveTime": func() any { return g.marker() },
		"selector":      func() any { return mapping{"matchLabels": mapping{"app": g.marker()}} },
	})
	return spec
}

// config is what Runners and RunnerSets have in common.
func (g *generator) config() mapping {
	spec := mapping{}
	switch g.pick("place", "enterprise", "organization", "repository") {
	case "enterprise":
		spec["enterprise"] = g.marker()
	case "organization":
		spec["organization"] = g.marker()
	default:
		spec["repository"] = "acme/" + g.marker()
	}
	g.some(spec, map[string]func() any{
		"labels":                       func() any { return []any{g.marker(), g.marker(), g.marker()} },
		"group":                        func() any { return g.marker() },
		"ephemeral":                    func() any { return g.coin("ephemeral") },
		"image":                        func() any { return g.pick("image", "summerwind/actions-runner:latest", "example.com/"+g.marker()) },
		"workDir":                      func() any { return g.pick("workDir", "/runner/_work", "/home/runner/"+g.marker(), "/"+g.marker()) },
		"dockerdWithinRunnerContainer": func() any { return g.coin("inside") },
		"dockerEnabled":                func() any { return g.coin("docker") },
		"dockerMTU":                    func() any { return 1400 },
		"dockerRegistryMirror":         func() any { return g.marker() },
		"dockerVarRunVolumeSizeLimit":  func() any { return "1Mi" },
		"volumeSizeLimit":              func() any { return "1Gi" },
		"volumeStorageMedium":          func() any { return g.marker() },
		"podTemplateName":              func() any { return g.marker() },
		"githubAPICredentialsFrom":     func() any { return mapping{"secretRef": mapping{"name": g.marker()}} },
		"serviceAccountName":           func() any { return g.marker() },
	})
	if g.coin("kubernetes") {
		spec["containerMode"] = "kubernetes"
		spec["workVolumeClaimTemplate"] = g.claim()
	}
	return spec
}

func (g *generator) claim() mapping {
	return mapping{
		"storageClassName": g.marker(), "accessModes": []any{g.pick("mode", "ReadWriteOnce", "ReadWriteMany")},
		"resources": mapping{"requests": mapping{"storage": "1Gi"}},
	}
}

func (g *generator) runner() mapping {
	spec := g.config()
	g.some(spec, g.podFields())
	g.some(spec, map[string]func() any{
		"containers":                func() any { return g.containers() },
		"sidecarContainers":         func() any { return []any{g.container(g.marker())} },
		"dockerdContainerResources": func() any { return g.resources() },
		"dockerVolumeMounts":        func() any { return g.mounts() },
		"dockerEnv":                 func() any { return g.env() },
		"imagePullPolicy":           func() any { return "Always" },
		"env":                       func() any { return g.env() },
		"envFrom":                   func() any { return []any{mapping{"configMapRef": mapping{"name": g.marker()}}} },
		"resources":                 func() any { return g.resources() },
		"volumeMounts":              func() any { return g.mounts() },
		"ephemeralContainers":       func() any { return []any{mapping{"name": g.marker()}} },
	})
	return spec
}

func (g *generator) podFields() map[string]func() any {
	return map[string]func() any{
		"volumes": func() any {
			return []any{
				mapping{"name": g.marker(), "emptyDir": mapping{"sizeLimit": "1Gi"}}, mapping{"name": g.marker(), "secret": mapping{"secretName": g.marker()}},
				mapping{"name": g.marker(), "hostPath": mapping{"path": "/" + g.marker()}},
			}
		},
		"initContainers":                func() any { return []any{g.container(g.marker())} },
		"nodeSelector":                  func() any { return mapping{"pool": g.marker()} },
		"automountServiceAccountToken":  func() any { return g.coin("automount") },
		"enableServiceLinks":            func() any { return g.coin("links") },
		"securityContext":               func() any { return mapping{"fsGroup": 1001, "seLinuxOptions": mapping{"type": g.marker()}} },
		"imagePullSecrets":              func() any { return []any{mapping{"name": g.marker()}} },
		"tolerations":                   func() any { return []any{mapping{"key": g.marker(), "operator": "Exists", "tolerationSeconds": 5}} },
		"priorityClassName":             func() any { return g.marker() },
		"terminationGracePeriodSeconds": func() any { return rapid.IntRange(0, 9000).Draw(g.t, "grace") },
		"hostAliases":                   func() any { return []any{mapping{"ip": g.marker(), "hostnames": []any{g.marker()}}} },
		"topologySpreadConstraints": func() any {
			return []any{mapping{"maxSkew": 1, "topologyKey": g.marker(), "whenUnsatisfiable": "ScheduleAnyway"}}
		},
		"runtimeClassName": func() any { return g.marker() },
		"dnsPolicy":        func() any { return "Default" },
		"dnsConfig":        func() any { return mapping{"nameservers": []any{g.marker()}} },
		"affinity": func() any {
			return mapping{"podAntiAffinity": mapping{"requiredDuringSchedulingIgnoredDuringExecution": []any{
				mapping{"topologyKey": g.marker(), "labelSelector": mapping{"matchLabels": mapping{"a": g.marker()}}},
			}}}
		},
	}
}

func (g *generator) containers() []any {
	var made []any
	for _, name := range []string{"runner", "docker", g.marker()} {
		if g.coin("container") {
			made = append(made, g.container(name))
		}
	}
	return made
}

func (g *generator) container(name string) mapping {
	made := mapping{"name": name}
	g.some(made, map[string]func() any{
		"image":           func() any { return "example.com/" + g.marker() },
		"command":         func() any { return []any{g.marker()} },
		"args":            func() any { return []any{g.marker()} },
		"env":             func() any { return g.env() },
		"resources":       func() any { return g.resources() },
		"volumeMounts":    func() any { return []any{mapping{"name": g.marker(), "mountPath": "/" + g.marker()}} },
		"imagePullPolicy": func() any { return "IfNotPresent" },
		"readinessProbe":  func() any { return mapping{"exec": mapping{"command": []any{g.marker()}}} },
		"securityContext": func() any { return mapping{"runAsUser": 1001, "capabilities": mapping{"add": []any{g.marker()}}} },
		"lifecycle":       func() any { return mapping{"preStop": mapping{"exec": mapping{"command": []any{g.marker()}}}} },
		"workingDir":      func() any { return g.marker() },
	})
	return made
}

func (g *generator) env() []any {
	return []any{
		mapping{"name": g.marker(), "value": g.marker()}, mapping{"name": "RUNNER_GRACEFUL_STOP_TIMEOUT", "value": g.marker()},
		mapping{"name": g.marker(), "valueFrom": mapping{"secretKeyRef": mapping{"name": g.marker(), "key": g.marker()}}},
	}
}

func (g *generator) mounts() []any {
	return []any{
		mapping{"name": g.marker(), "mountPath": g.pick("at", "/runner/_work", "/home/runner/_work", "/"+g.marker())},
		mapping{"name": g.marker(), "mountPath": "/" + g.marker(), "readOnly": true},
	}
}

func (g *generator) resources() mapping {
	made := mapping{}
	g.some(made, map[string]func() any{
		"limits": func() any {
			return mapping{"cpu": g.pick("cpu", 2, "2", "1500m"), "memory": "4Gi", "ephemeral-storage": "1Gi"}
		},
		"requests": func() any { return mapping{"cpu": g.pick("cpu", 1, "500m")} },
	})
	return made
}

func (g *generator) runnerSet() mapping {
	spec := g.config()
	spec["template"] = mapping{"metadata": mapping{"labels": mapping{"app": g.marker()}}, "spec": g.pod(g.containers())}
	g.some(spec, map[string]func() any{
		"replicas":             func() any { return 3 },
		"selector":             func() any { return mapping{"matchLabels": mapping{"app": g.marker()}} },
		"serviceName":          func() any { return g.marker() },
		"podManagementPolicy":  func() any { return g.marker() },
		"updateStrategy":       func() any { return mapping{"type": g.marker()} },
		"revisionHistoryLimit": func() any { return 2 },
		"minReadySeconds":      func() any { return 2 },
		"persistentVolumeClaimRetentionPolicy": func() any {
			return mapping{"whenDeleted": g.pick("deleted", "Delete", "Retain", g.marker()), "whenScaled": g.pick("scaled", "Delete", "Retain", g.marker())}
		},
		"volumeClaimTemplates": func() any {
			return []any{mapping{"metadata": mapping{"name": g.marker(), "labels": mapping{"a": g.marker()}, "uid": g.marker()}, "spec": g.claim(), "status": mapping{"phase": g.marker()}}}
		},
	})
	return spec
}

func (g *generator) pod(containers []any) mapping {
	pod := mapping{"containers": containers}
	g.some(pod, g.podFields())
	g.some(pod, map[string]func() any{
		"restartPolicy":       func() any { return "Never" },
		"serviceAccountName":  func() any { return g.marker() },
		"hostname":            func() any { return g.marker() },
		"schedulerName":       func() any { return g.marker() },
		"ephemeralContainers": func() any { return []any{mapping{"name": g.marker()}} },
	})
	return pod
}

func (g *generator) scaleSet(mode string) mapping {
	runner := g.container("runner")
	delete(runner, "workingDir")
	containers := []any{runner}
	pod := g.pod(nil)
	volumes, _ := pod["volumes"].([]any)
	switch mode {
	case "dind":
		containers = append(containers, g.container("dind"))
		volumes = append(volumes, mapping{"name": "dind-sock", "emptyDir": mapping{"medium": g.marker()}}, mapping{"name": "work", "emptyDir": mapping{}})
	case "hooks":
		env, _ := runner["env"].([]any)
		runner["env"] = append(env, mapping{"name": "ACTIONS_RUNNER_CONTAINER_HOOKS", "value": g.marker()})
		volumes = append(volumes, mapping{"name": "work", "ephemeral": mapping{"volumeClaimTemplate": mapping{"spec": g.claim(), "metadata": mapping{"labels": mapping{"a": g.marker()}}}}})
	}
	if g.coin("projected") {
		volumes = append(volumes, mapping{"name": g.marker(), "projected": mapping{"sources": []any{mapping{"secret": mapping{"name": g.marker()}}}}})
	}
	pod["containers"], pod["volumes"] = append(containers, g.container(g.marker())), volumes
	spec := mapping{
		"githubConfigUrl": g.pick("url", "https://github.com/"+g.marker(), "https://github.com/acme/"+g.marker(), "https://github.com/enterprises/"+g.marker()),
		"template":        mapping{"metadata": mapping{"labels": mapping{"app": g.marker()}}, "spec": pod},
	}
	g.some(spec, map[string]func() any{
		"githubConfigSecret":      func() any { return g.marker() },
		"runnerGroup":             func() any { return g.marker() },
		"runnerScaleSetName":      func() any { return g.marker() },
		"runnerScaleSetLabels":    func() any { return []any{g.marker(), g.marker()} },
		"minRunners":              func() any { return rapid.IntRange(0, 20).Draw(g.t, "min") },
		"maxRunners":              func() any { return rapid.IntRange(0, 20).Draw(g.t, "max") },
		"githubServerTLS":         func() any { return mapping{"certificateFrom": mapping{"configMapKeyRef": mapping{"name": g.marker()}}} },
		"vaultConfig":             func() any { return mapping{"azureKeyVault": mapping{"url": g.marker()}} },
		"listenerTemplate":        func() any { return mapping{"spec": mapping{"nodeName": g.marker()}} },
		"listenerMetrics":         func() any { return mapping{"counters": mapping{"a": mapping{"labels": []any{g.marker()}}}} },
		"autoscalingListener":     func() any { return mapping{"labels": mapping{"a": g.marker()}} },
		"ephemeralRunnerMetadata": func() any { return mapping{"labels": mapping{"a": g.marker()}} },
		"proxy": func() any {
			return mapping{
				"http": mapping{"url": "http://" + g.marker()}, "noProxy": []any{g.marker()},
				"https": mapping{"url": "http://" + g.marker(), "credentialSecretRef": g.marker()},
			}
		},
	})
	return mapping{"apiVersion": "actions.github.com/v1alpha1", "kind": "AutoscalingRunnerSet", "metadata": g.meta(), "spec": spec}
}

// intrude puts unknown fields into mappings of the object.
func (g *generator) intrude(into mapping) {
	for range rapid.IntRange(0, 4).Draw(g.t, "intruders") {
		at := into
		for {
			var below []string
			for _, name := range names(funcs(at)) {
				if _, ok := at[name].(mapping); ok {
					below = append(below, name)
				} else if list, ok := at[name].([]any); ok && len(list) > 0 {
					if _, ok := list[0].(mapping); ok {
						below = append(below, name)
					}
				}
			}
			if len(below) == 0 || rapid.IntRange(0, 3).Draw(g.t, "stay") == 0 {
				break
			}
			switch next := at[rapid.SampledFrom(below).Draw(g.t, "below")].(type) {
			case mapping:
				at = next
			case []any:
				at = next[rapid.IntRange(0, len(next)-1).Draw(g.t, "item")].(mapping)
			}
		}
		at["intruder"+g.marker()] = g.pick("intruder", g.marker(), mapping{"deep": []any{g.marker()}})
	}
}

func funcs(of mapping) map[string]func() any {
	found := map[string]func() any{}
	for name := range of {
		found[name] = nil
	}
	return found
}
