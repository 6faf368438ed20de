package arcmigration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli/arcmigration"
)

func check(t *testing.T, content string, options arcmigration.Options) checked {
	t.Helper()
	if options.Namespace == "" {
		options.Namespace = "bullpen-runners"
	}
	result := convert(content, options)
	require.NotEmpty(t, result.Objects, "%v", result.Problems)
	return checked{Result: result, t: t, text: output(t, result)}
}

// scaleSetValues are those of a scale set, with a pod whose lines are given.
func scaleSetValues(pod ...string) string {
	values := "githubConfigUrl: https://github.com/acme\ngithubConfigSecret: gh\nrunnerScaleSetName: shop\nmaxRunners: 3\ntemplate:\n  spec:\n"
	for _, line := range pod {
		values += "    " + line + "\n"
	}
	return values
}

func legacy(spec ...string) string {
	deployment := "apiVersion: actions.summerwind.dev/v1alpha1\nkind: RunnerDeployment\nmetadata: {name: web, namespace: bullpen-runners}\nspec:\n  template:\n    spec:\n      repository: acme/app\n"
	for _, line := range spec {
		deployment += "      " + line + "\n"
	}
	return deployment
}

const githubsRunner = `containers: [{name: runner, image: "ghcr.io/actions/actions-runner:latest", resources: {limits: {cpu: 2, memory: 4Gi}}}]`

// A Docker daemon that is written down by hand is found in whatever form, and never half of it is carried over.
func TestConvert_M1_DockerByHandBecomesDind(t *testing.T) {
	runner := `{name: runner, image: "ghcr.io/actions/actions-runner:latest", env: [{name: DOCKER_HOST, value: "tcp://localhost:2375"}], resources: {limits: {cpu: 2, memory: 4Gi}}}`
	for name, pod := range map[string][]string{
		"a sidecar":                  {"containers: [" + runner + `, {name: dind, image: "docker:dind", securityContext: {privileged: true}}]`},
		"an init container":          {"initContainers: [{name: dind, image: \"docker:27.3.1-dind\", restartPolicy: Always}]", "containers: [" + runner + "]"},
		"another name":               {"containers: [" + runner + `, {name: daemon, image: "mirror.example.com/library/docker:24-dind-rootless"}]`},
		"an image of one's own":      {"containers: [" + runner + `, {name: builder, image: "example.com/engine:1", command: [sh, -c, "exec dockerd --host=tcp://0.0.0.0:2375"]}]`},
		"a name and privileges":      {"containers: [" + runner + `, {name: docker, image: "example.com/engine:1", securityContext: {privileged: true}}]`},
		"a digest":                   {"containers: [" + runner + `, {name: engine, image: "docker:dind@sha256:0000000000000000000000000000000000000000000000000000000000000000"}]`},
		"privileges alone":           {"containers: [" + runner + `, {name: engine, image: "example.com/engine:1", securityContext: {privileged: true}}]`},
		"the chart's, and resources": {"containers: [" + runner + `, {name: dind, image: "docker:dind", resources: {limits: {memory: 2Gi}}}]`},
	} {
		t.Run(name, func(t *testing.T) {
			c := check(t, scaleSetValues(pod...), arcmigration.Options{RuntimeClass: "kata"})
			require.False(t, c.Failed(), "%+v", c.Objects)
			c.has("kind: RunnerPool", "dind:", "runtimeClassName: kata")
			c.hasNot("DOCKER_HOST", "2375")

			c = check(t, scaleSetValues(pod...), arcmigration.Options{To: "RunnerDeployment", RuntimeClass: "kata"})
			c.has("kind: RunnerDeployment", "containerMode: Dind", "runtimeClassName: kata")
			c.hasNot("DOCKER_HOST", "2375", "privileged")

			c = check(t, legacy(append([]string{"dockerEnabled: false"}, pod...)...), arcmigration.Options{RuntimeClass: "kata"})
			c.has("kind: RunnerDeployment", "containerMode: Dind", "runtimeClassName: kata")
			c.hasNot("DOCKER_HOST", "2375", "privileged")
		})
	}
	c := check(t, scaleSetValues("containers: ["+runner+`, {name: client, image: "docker:27-cli", command: [sleep, infinity]}]`), arcmigration.Options{})
	c.hasNot("dind:")
	requireFinding(t, c.Objects[0], arcmigration.Dropped, "template.spec.containers[1]", "")
	requireFinding(t, c.Objects[0], arcmigration.ToDo, "template.spec.containers[0].env[0]", "no container is one")
	c = check(t, legacy("dockerEnabled: false", "containers: ["+runner+"]"), arcmigration.Options{})
	requireFinding(t, c.Objects[0], arcmigration.ToDo, "spec.template.spec.containers[0].env[0]", "no container is one")
}

// What belongs to the daemon alone goes with it, and what does not stays; what cannot be carried over is said by itself.
func TestConvert_M1_VolumesAndMountsAreJudgedTogether(t *testing.T) {
	c := check(t, string(examples(t)["corpus/rd-docker-by-hand.yaml"]), arcmigration.Options{RuntimeClass: "kata"})
	c.has("storage: 40Gi", "image: docker:24.0-dind", "name: cache", "BUILDKIT_PROGRESS")
	c.hasNot("name: certs", "DOCKER_TLS_VERIFY", "name: images", "name: daemon")
	const pod = "spec.template.spec."
	requireFinding(t, c.Objects[0], arcmigration.Dropped, pod+"sidecarContainers[0].args[0]", "")
	requireFinding(t, c.Objects[0], arcmigration.Dropped, pod+"sidecarContainers[0].env[1]", "")
	requireFinding(t, c.Objects[0], arcmigration.Dropped, pod+"sidecarContainers[0].volumeMounts[1]", "")
	requireFinding(t, c.Objects[0], arcmigration.Dropped, pod+"volumes[2]", "only by what is not converted")
	requireFinding(t, c.Objects[0], arcmigration.Unneeded, pod+"volumes[0]", "")

	c = check(t, string(examples(t)["corpus/values-docker-tls.yaml"]), arcmigration.Options{})
	requireFinding(t, c.Objects[0], arcmigration.Dropped, "template.spec.volumes[2]", "only by what is not converted")
	requireFinding(t, c.Objects[0], arcmigration.Changed, "template.spec.containers[1].command[1]", "only at its socket")
	c.hasNot("volumes:", "volumeMounts:")
}

// The layers of a daemon in the runner's own container do not stay mounted where no daemon is any more.
func TestConvert_M1_LayersOfADaemonInTheRunner(t *testing.T) {
	c := check(t, legacy("dockerdWithinRunnerContainer: true", "volumeMounts: [{name: layers, mountPath: /var/lib/docker}, {name: cache, mountPath: /cache}]",
		"volumes: [{name: layers, hostPath: {path: /mnt/layers}}, {name: cache, emptyDir: {}}]"), arcmigration.Options{RuntimeClass: "kata"})
	requireFinding(t, c.Objects[0], arcmigration.Dropped, "spec.template.spec.volumeMounts[0]", "dind.storage")
	requireFinding(t, c.Objects[0], arcmigration.Dropped, "spec.template.spec.volumes[0]", "only by what is not converted")
	c.hasNot("layers")
	c.has("name: cache")

	c = check(t, `apiVersion: actions.summerwind.dev/v1alpha1
kind: RunnerSet
metadata: {name: layers}
spec:
  repository: acme/app
  dockerdWithinRunnerContainer: true
  template: {spec: {serviceAccount: cloud, containers: [{name: runner, volumeMounts: [{name: lib, mountPath: /var/lib/docker}]}]}}
  volumeClaimTemplates: [{metadata: {name: lib}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}}}]
`, arcmigration.Options{RuntimeClass: "kata"})
	requireFinding(t, c.Objects[0], arcmigration.Dropped, "spec.volumeClaimTemplates[0]", "only by what is not converted")
	requireFinding(t, c.Objects[0], arcmigration.ToDo, "spec.template.spec.serviceAccount", "")
	c.hasNot("lib", "volumeClaimTemplates")
}

// Container hooks that are set up by hand become container mode Kubernetes, or an error; never a runner that is configured to use them without rights.
func TestConvert_M2_HooksByHandBecomeKubernetesMode(t *testing.T) {
	env := "env: [{name: ACTIONS_RUNNER_CONTAINER_HOOKS, value: %}, {name: ACTIONS_RUNNER_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"
	runner := func(hooks string) string {
		return `containers: [{name: runner, image: "ghcr.io/actions/actions-runner:latest", ` + strings.ReplaceAll(env, "%", hooks) + `, volumeMounts: [{name: jobs, mountPath: /home/runner/_work/}]}]`
	}
	const claim = "volumes: [{name: jobs, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]"
	for _, content := range []string{
		scaleSetValues("serviceAccountName: hooks", runner("/home/runner/k8s/index.js"), claim),
		legacy("dockerEnabled: false", "serviceAccountName: hooks", runner("/home/runner/k8s/index.js"), claim),
		legacy("dockerEnabled: false", "serviceAccountName: hooks", `image: "ghcr.io/actions/actions-runner:latest"`, strings.ReplaceAll(env, "%", "/home/runner/k8s/index.js"), "volumeMounts: [{name: jobs, mountPath: /home/runner/_work}]", claim),
	} {
		c := check(t, content, arcmigration.Options{})
		require.False(t, c.Failed(), "%+v", c.Objects)
		c.has("containerMode: Kubernetes", "serviceAccountName: hooks", "storage: 1Gi")
		c.hasNot("name: jobs", "ACTIONS_RUNNER_POD_NAME", "k8s/index.js")
	}
	for _, c := range []struct{ content, path, says string }{
		{scaleSetValues(runner("/home/runner/k8s/index.js"), "volumes: [{name: jobs, emptyDir: {}}]"), "template.spec.containers[0].env[0]", "kubernetesModeWorkVolumeClaim"},
		{scaleSetValues(runner("/home/runner/k8s-novolume/index.js"), claim), "template.spec.containers[0].env[0]", "novolume"},
		{legacy("dockerEnabled: false", runner("/home/runner/k8s/index.js"), "volumes: [{name: jobs, persistentVolumeClaim: {claimName: jobs}}]"), "spec.template.spec.containers[0].env[0]", "workVolumeClaimTemplate"},
		{legacy("containerMode: kubernetes"), "spec.template.spec.containerMode", "workVolumeClaimTemplate"},
	} {
		result := check(t, c.content, arcmigration.Options{})
		require.True(t, result.Failed())
		requireFinding(t, result.Objects[0], arcmigration.Failed, c.path, c.says)
	}
}

// Jobs that ask for the labels that config.sh adds are served as before.
func TestConvert_M3_TheLabelsOfConfigAreWrittenDown(t *testing.T) {
	for name, c := range map[string]struct{ spec, want string }{
		"none":                     {`image: "ghcr.io/actions/actions-runner:latest"`, "labels:\n      - self-hosted\n      - Linux\n      - X64\n"},
		"some of them":             {"labels: [LINUX, x64, big]", "labels:\n      - self-hosted\n      - LINUX\n      - x64\n      - big\n"},
		"arm64 by the selector":    {"nodeSelector: {kubernetes.io/arch: arm64}", "- ARM64\n"},
		"arm64 by the old label":   {"nodeSelector: {beta.kubernetes.io/arch: arm64}", "- ARM64\n"},
		"arm64 by affinity":        {"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]}]}}}", "- ARM64\n"},
		"arm64 by a label":         {"labels: [arm64]", "labels:\n      - self-hosted\n      - Linux\n      - arm64\n      organization"},
		"arm64 by the image":       {"image: example.com/runner:3-arm64", "- ARM64\n"},
		"either architecture: x64": {"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [arm64, amd64]}]}]}}}", "- X64\n"},
	} {
		t.Run(name, func(t *testing.T) {
			content := strings.Replace(legacy("dockerEnabled: false", c.spec), "repository: acme/app", "organization: acme", 1)
			check(t, content, arcmigration.Options{}).has(c.want)
		})
	}
}

// A ServiceAccount is never called unneeded, but for that which the old chart makes without rights.
func TestConvert_M4_AServiceAccountIsNotDroppedInSilence(t *testing.T) {
	lost := []arcmigration.Verdict{arcmigration.Dropped, arcmigration.ToDo}
	for name, c := range map[string]struct{ content, path string }{
		"values":             {scaleSetValues("serviceAccountName: cloud", githubsRunner), "template.spec.serviceAccountName"},
		"the old field":      {scaleSetValues("serviceAccount: cloud", githubsRunner), "template.spec.serviceAccount"},
		"a legacy runner":    {legacy("dockerEnabled: false", "serviceAccountName: cloud"), "spec.template.spec.serviceAccountName"},
		"an account's token": {scaleSetValues("automountServiceAccountToken: true", githubsRunner), "template.spec.automountServiceAccountToken"},
		"a legacy token":     {legacy("dockerEnabled: false", "automountServiceAccountToken: true"), "spec.template.spec.automountServiceAccountToken"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, to := range []string{"", "RunnerDeployment"} {
				found := false
				for _, finding := range check(t, c.content, arcmigration.Options{To: to}).Objects[0].Findings {
					if finding.Path == c.path {
						require.Contains(t, lost, finding.Verdict)
						found = true
					}
				}
				require.True(t, found)
			}
		})
	}
	c := check(t, scaleSetValues("serviceAccountName: shop-gha-rs-no-permission", githubsRunner), arcmigration.Options{})
	requireFinding(t, c.Objects[0], arcmigration.Unneeded, "template.spec.serviceAccountName", "")
}

// Runners for Windows are an error, by whatever it shows.
func TestConvert_M5_WindowsIsAnError(t *testing.T) {
	const affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}]}}}"
	for name, content := range map[string]string{
		"selector":           legacy("nodeSelector: {kubernetes.io/os: windows}"),
		"the old selector":   legacy("nodeSelector: {beta.kubernetes.io/os: Windows}"),
		"affinity":           legacy(affinity),
		"image":              legacy("image: example.com/actions-runner-windows:ltsc2022"),
		"container's image":  legacy(`containers: [{name: runner, image: "mcr.microsoft.com/windows/servercore:ltsc2022"}]`),
		"label":              legacy("labels: [Windows]"),
		"label of a version": legacy("labels: [windows-2022]"),
		"values":             scaleSetValues("nodeSelector: {kubernetes.io/os: windows}", githubsRunner),
		"values' affinity":   scaleSetValues(affinity, githubsRunner),
		"values' image":      scaleSetValues(`containers: [{name: runner, image: "example.com/runner:windows-2022"}]`),
		"values' command":    scaleSetValues(`containers: [{name: runner, image: "example.com/runner:1", command: ["C:\\actions\\run.cmd"]}]`),
		"values' labels":     scaleSetValues(githubsRunner) + "scaleSetLabels: [windows]\n",
		"toleration":         legacy("tolerations: [{key: os, operator: Equal, value: windows, effect: NoSchedule}]"),
		"a pod's system":     scaleSetValues("os: {name: windows}", githubsRunner),
		"a runner set": "apiVersion: actions.summerwind.dev/v1alpha1\nkind: RunnerSet\nmetadata: {name: web}\nspec:\n  repository: acme/app\n  template:\n    spec:\n      nodeSelector: {kubernetes.io/os: windows}\n" +
			"      containers: [{name: runner}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			for _, to := range []string{"", "RunnerDeployment"} {
				c := check(t, content, arcmigration.Options{To: to})
				require.Equal(t, arcmigration.NotConverted, c.Objects[0].Outcome)
				require.Empty(t, c.text)
			}
		})
	}
	for _, spec := range []string{
		"labels: [windows-ui-tests, winter]", "nodeSelector: {kubernetes.io/os: linux}", "image: example.com/darwin-windowing:1",
		"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: NotIn, values: [windows]}]}]}}}",
	} {
		require.False(t, check(t, legacy("dockerEnabled: false", spec), arcmigration.Options{}).Failed(), spec)
	}
}

// The number goes up from the same share of busy runners on as before.
func TestConvert_M6_ThresholdsCountFromTheSameShareOn(t *testing.T) {
	for name, c := range map[string]struct{ metric, want string }{
		"one":                {"scaleUpThreshold: '1'", "upAbove: 99\n"},
		"a share":            {"scaleUpThreshold: '0.75'", "upAbove: 74\n"},
		"a number":           {"scaleUpThreshold: 0.5", "upAbove: 49\n"},
		"hard for floats":    {"scaleUpThreshold: '0.57', scaleDownThreshold: '0.29'", "downBelow: 29\n      upAbove: 56\n"},
		"the default":        {"scaleDownThreshold: '0.3'", "upAbove: 79\n"},
		"not whole":          {"scaleUpThreshold: '0.755'", "upAbove: 75\n"},
		"above one":          {"scaleUpThreshold: '80'", "upAbove: 100\n"},
		"nothing at all":     {"scaleUpThreshold: '0', scaleDownThreshold: '0'", "upAbove: 1\n"},
		"next to each other": {"scaleUpThreshold: '0.31', scaleDownThreshold: '0.30'", "downBelow: 29\n      upAbove: 30\n"},
	} {
		t.Run(name, func(t *testing.T) {
			content := legacy("dockerEnabled: false") + "---\napiVersion: actions.summerwind.dev/v1alpha1\nkind: HorizontalRunnerAutoscaler\nmetadata: {name: web, namespace: bullpen-runners}\n" +
				"spec: {scaleTargetRef: {name: web}, maxReplicas: 5, metrics: [{type: PercentageRunnersBusy, " + c.metric + "}]}\n"
			result := check(t, content, arcmigration.Options{})
			require.False(t, result.Failed(), "%+v", result.Objects)
			result.has(c.want)
		})
	}
}

// What kubectl prints though it says nothing is no finding that counts; an empty field that is not known is one.
func TestConvert_M10_EmptyFieldsSayNothing(t *testing.T) {
	empty := []string{"dockerEnabled: false", `image: "ghcr.io/actions/actions-runner:latest"`, "dockerdContainerResources: {}", "resources: {}", "env: []", "volumes: []", "securityContext: {}", "tolerations: null", "labels: []"}
	c := check(t, strings.Replace(legacy(empty...), "    spec:\n      repo", "    metadata: {creationTimestamp: null}\n    spec:\n      repo", 1)+"status: {}\n", arcmigration.Options{})
	require.Zero(t, c.Left(), "%+v", c.Objects)

	c = check(t, scaleSetValues("securityContext: {}", "initContainers: []", "dnsConfig: {}", githubsRunner)+"listenerTemplate: {}\nkeyVault: {}\nproxy: {}\n", arcmigration.Options{})
	require.Zero(t, c.Left(), "%+v", c.Objects)

	c = check(t, legacy("dockerEnabled: false", "somethingNew: {}"), arcmigration.Options{})
	requireFinding(t, c.Objects[0], arcmigration.Dropped, "spec.template.spec.somethingNew", "")
}

// A finding is of the very field, with its line and column, however it is written.
func TestConvert_M11_M12_FindingsNameTheVeryField(t *testing.T) {
	c := check(t, scaleSetValues(
		"dnsConfig:", "  # a comment", "  options: [{name: ndots, value: \"2\"}]",
		"containers:", "  - name: runner", "    resources:", "      limits: {cpu: 2, memory: 4Gi, nvidia.com/gpu: 1}", "    envFrom:", "      - secretRef: {name: x}",
		"  - image: example.com/logs:1", "    name: logs",
	), arcmigration.Options{})
	for path, place := range map[string][2]int{
		"template.spec.dnsConfig": {7, 5},
		`template.spec.containers[0].resources.limits["nvidia.com/gpu"]`: {13, 41},
		"template.spec.containers[0].envFrom":                            {14, 9},
		"template.spec.containers[1]":                                    {16, 9},
	} {
		finding := requireFinding(t, c.Objects[0], arcmigration.Dropped, path, "")
		require.Equal(t, place, [2]int{finding.Line, finding.Column}, path)
	}
	for _, finding := range c.Objects[0].Findings {
		if finding.Path == "githubConfigUrl" {
			require.Contains(t, finding.Reason, "serves every account", "only what is of the URL is said of it")
		}
		require.NotContains(t, []string{"", "template", "template.spec", "template.spec.containers"}, finding.Path, "%+v", finding)
	}
}

// What the controller would refuse a pod for is said of the part that it would refuse, not of the whole pod.
func TestConvert_M11_WhatTheControllerRefusesIsNamed(t *testing.T) {
	const mode = "dockerEnabled: false"
	for path, content := range map[string]string{
		"spec.template.spec.volumes[1]":                           legacy(mode, "volumes: [{name: a, emptyDir: {}}, {name: sock, hostPath: {path: /var/run/docker.sock}}]", "volumeMounts: [{name: sock, mountPath: /sock}]"),
		"spec.template.spec.sidecarContainers[0].securityContext": legacy(mode, `sidecarContainers: [{name: vpn, image: "example.com/vpn:1", securityContext: {privileged: true}}]`),
		"template.spec.volumes[0]":                                scaleSetValues(githubsRunner, "volumes: [{name: host, hostPath: {path: /mnt}}]"),
		"template.spec.containers[0].volumeMounts[1]":             scaleSetValues(`containers: [{name: runner, image: "ghcr.io/actions/actions-runner:latest", resources: {limits: {cpu: 2, memory: 4Gi}}, volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}]`, "volumes: [{name: a, emptyDir: {}}]"),
		"spec.template.spec.containers[0].volumeMounts[0]":        legacy(mode, `containers: [{name: runner, volumeMounts: [{name: b, mountPath: /b}]}]`),
	} {
		c := check(t, content, arcmigration.Options{})
		requireFinding(t, c.Objects[0], arcmigration.ToDo, path, "no pod can be built from it")
	}
}

// Marks by which a tool knows what it owns do not come along, in whatever place, and are reported.
func TestConvert_R8_OwnershipMarksAreDropped(t *testing.T) {
	marks := []string{
		"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/sync-wave",
		"kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace", "fluxcd.io/sync-checksum", "meta.helm.sh/release-name", "helm.sh/chart", "helm.sh/resource-policy",
		"heritage", "chart", "release", "kubectl.kubernetes.io/last-applied-configuration", "applyset.kubernetes.io/part-of", "objectset.rio.cattle.io/id", "kapp.k14s.io/app",
		"configsync.gke.io/resource-id", "config.k8s.io/owning-inventory", "skaffold.dev/run-id", "olm.owner", "addonmanager.kubernetes.io/mode", "actions-runner-controller/id",
	}
	var text strings.Builder
	for _, mark := range marks {
		text.WriteString(mark + ": x, ")
	}
	all := "{" + text.String() + "team: shop, example.com/owner: us}"
	for name, content := range map[string]string{
		"labels":         strings.Replace(legacy("dockerEnabled: false"), "namespace:", "labels: "+all+", namespace:", 1),
		"annotations":    strings.Replace(legacy("dockerEnabled: false"), "namespace:", "annotations: "+all+", namespace:", 1),
		"of the runners": strings.Replace(legacy("dockerEnabled: false"), "    spec:\n      repo", "    metadata: {labels: "+all+"}\n    spec:\n      repo", 1),
		"of values":      scaleSetValues(githubsRunner) + "labels: " + all + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := check(t, content, arcmigration.Options{})
			c.has("team: shop", "example.com/owner: us")
			for _, mark := range marks {
				c.hasNot(mark)
				said := false
				for _, finding := range c.Objects[0].Findings {
					said = said || strings.HasSuffix(finding.Path, "."+mark) || strings.HasSuffix(finding.Path, `["`+mark+`"]`)
				}
				require.True(t, said, mark)
			}
		})
	}
}
