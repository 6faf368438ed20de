package arcmigration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli/arcmigration"
)

const setValues = `githubConfigUrl: https://github.com/acme/app
githubConfigSecret: gh
maxRunners: 3
template: {spec: {hostNetwork: true, containers: [{name: runner, image: "ghcr.io/actions/actions-runner:latest", resources: {limits: {cpu: 2, memory: 4Gi}}}]}}
`

func indent(text string, spaces int) string {
	pad := strings.Repeat(" ", spaces)
	return pad + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+pad) + "\n"
}

const (
	fluxHead = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: shop, namespace: bullpen-runners}\nspec:\n  interval: 1h\n"
	argoHead = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: shop, namespace: argocd}\nspec:\n  destination: {namespace: bullpen-runners}\n"
	argoSet  = argoHead + "  source:\n    repoURL: ghcr.io/actions/actions-runner-controller-charts\n    chart: gha-runner-scale-set\n    helm:\n"
)

// Values are converted where they are, with the places that they have there, whatever tool installs the chart.
func TestConvert_M7_ValuesAreConvertedInPlace(t *testing.T) {
	for name, c := range map[string]struct {
		content, path string
		line, column  int
	}{
		"Flux":                     {fluxHead + "  chartRef: {kind: OCIRepository, name: runners}\n  values:\n" + indent(setValues, 4), "spec.values.template.spec.hostNetwork", 11, 23},
		"Flux before it was 2":     {strings.Replace(fluxHead, "/v2", "/v2beta1", 1) + "  chart: {spec: {chart: gha-runner-scale-set}}\n  values:\n" + indent(setValues, 4), "spec.values.template.spec.hostNetwork", 11, 23},
		"Argo CD, an object":       {argoSet + "      valuesObject:\n" + indent(setValues, 8), "spec.source.helm.valuesObject.template.spec.hostNetwork", 14, 27},
		"Argo CD, a text":          {argoSet + "      values: |\n" + indent(setValues, 8), "spec.source.helm.values.template.spec.hostNetwork", 14, 27},
		"Argo CD, many sources":    {argoHead + "  sources:\n    - chart: gha-runner-scale-set\n      helm:\n        valuesObject:\n" + indent(setValues, 10), "spec.sources[0].helm.valuesObject.template.spec.hostNetwork", 13, 29},
		"a chart in between":       {fluxHead + "  values:\n    global: {a: b}\n    gha-runner-scale-set:\n" + indent(setValues, 6), "spec.values.gha-runner-scale-set.template.spec.hostNetwork", 12, 25},
		"two charts in between":    {argoHead + "  source:\n    path: charts/ci\n    helm:\n      values: |-\n        ci:\n          runners:\n" + indent(setValues, 12), "spec.source.helm.values.ci.runners.template.spec.hostNetwork", 15, 31},
		"k3s":                      {"apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: shop, namespace: kube-system}\nspec:\n  targetNamespace: bullpen-runners\n  valuesContent: |\n" + indent(setValues, 4), "spec.valuesContent.template.spec.hostNetwork", 10, 23},
		"a List of it":             {"apiVersion: v1\nkind: List\nitems:\n" + "- " + strings.TrimPrefix(indent(fluxHead+"  values:\n"+indent(setValues, 4), 2), "  "), "spec.values.template.spec.hostNetwork", 13, 25},
		"values of a parent chart": {"other: {replicas: 2}\nrunners:\n  runnerScaleSetName: shop\n" + indent(setValues, 2), "runners.template.spec.hostNetwork", 7, 21},
	} {
		t.Run(name, func(t *testing.T) {
			result := check(t, c.content, arcmigration.Options{})
			require.False(t, result.Failed(), "%+v", result.Objects)
			require.Len(t, result.Objects, 1)
			result.has("kind: RunnerPool", "name: shop\n", "- shop\n", "maxReplicas: 3", "namespace: bullpen-runners")
			finding := requireFinding(t, result.Objects[0], arcmigration.Dropped, c.path, "")
			require.Equal(t, []int{c.line, c.column}, []int{finding.Line, finding.Column})
			require.Empty(t, arcmigration.Overlooked(result.Result, result.Objects[0]))
		})
	}
}

// Values that are somewhere else are a finding, and an error where the scale set cannot be without them.
func TestConvert_M7_ValuesThatCannotBeReadAreSaid(t *testing.T) {
	const from = "  valuesFrom: [{kind: ConfigMap, name: common}, {kind: Secret, name: own, targetPath: githubConfigSecret.github_token}]\n"
	c := check(t, fluxHead+from+"  values:\n"+indent(setValues, 4), arcmigration.Options{})
	requireFinding(t, c.Objects[0], arcmigration.ToDo, "spec.valuesFrom[0]", "ConfigMap common")
	requireFinding(t, c.Objects[0], arcmigration.ToDo, "spec.valuesFrom[1]", "Secret own")

	for name, content := range map[string]struct{ content, path string }{
		"Flux, nothing inline":      {fluxHead + "  chart: {spec: {chart: gha-runner-scale-set}}\n" + from, "spec.valuesFrom[0]"},
		"Flux, no URL inline":       {fluxHead + "  chart: {spec: {chart: ./charts/gha-runner-scale-set}}\n" + from + "  values: {maxRunners: 3}\n", "spec.valuesFrom[0]"},
		"Flux, nothing at all":      {fluxHead + "  chartRef: {kind: OCIRepository, name: gha-runner-scale-set}\n", "spec.values.githubConfigUrl"},
		"Argo CD, files":            {argoSet + "      valueFiles: [values-prod.yaml]\n", "spec.source.helm.valueFiles[0]"},
		"Argo CD, no values":        {argoHead + "  source: {chart: gha-runner-scale-set}\n", "spec.source.helm.valuesObject.githubConfigUrl"},
		"Argo CD, a text with {{":   {argoSet + "      values: |\n        githubConfigUrl: {{ .Values.url }}\n", "spec.source.helm.values"},
		"the experimental chart":    {fluxHead + "  values: {auth: {url: \"https://github.com/acme\"}, scaleset: {name: shop}}\n", "spec.values.scaleset.name"},
		"the experimental chart, 2": {fluxHead + "  chart: {spec: {chart: gha-runner-scale-set-experimental}}\n  values: {scaleset: {minRunners: 1}}\n", "spec.values.scaleset"},
		"an ApplicationSet": {"apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: shop}\nspec:\n  template:\n    spec:\n      source:\n        helm:\n          valuesObject: {githubConfigUrl: \"https://github.com/{{org}}\"}\n",
			"spec.template.spec.source.helm.valuesObject"},
		"a kustomization":            {"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nhelmCharts:\n  - {name: gha-runner-scale-set, valuesFile: values.yaml}\n", "helmCharts[0]"},
		"an ApplicationSet of files": {"apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: shop}\nspec: {template: {spec: {source: {chart: gha-runner-scale-set}}}}\n", "spec.template.spec.source"},
		"a ConfigMap of values":      {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata:\n  values.yaml: |\n    githubConfigUrl: https://github.com/acme\n", `data["values.yaml"]`},
		"a manifest in another":      {"apiVersion: work.example.com/v1\nkind: ManifestWork\nmetadata: {name: shop}\nspec: {manifests: [{apiVersion: actions.summerwind.dev/v1alpha1, kind: Runner, spec: {repository: acme/app}}]}\n", "spec.manifests[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			c := check(t, content.content, arcmigration.Options{})
			require.True(t, c.Failed())
			require.Empty(t, c.text)
			requireFinding(t, c.Objects[0], arcmigration.Failed, content.path, "")
		})
	}
}

// Parameters count more than values, and each says where it is written.
func TestConvert_M7_ParametersAreSetAsHelmDoes(t *testing.T) {
	c := check(t, argoSet+"      parameters:\n        - {name: maxRunners, value: \"9\"}\n        - {name: \"template.spec.containers[0].image\", value: example.com/runner:7}\n        - {name: runnerScaleSetName, value: \"7\", forceString: true}\n"+
		"        - {name: 'template.spec.nodeSelector.kubernetes\\.io/arch', value: arm64}\n      values: |\n"+indent(setValues, 8), arcmigration.Options{})
	require.False(t, c.Failed(), "%+v", c.Objects)
	c.has("maxReplicas: 9", "image: example.com/runner:7", "- \"7\"\n", "kubernetes.io/arch: arm64", "architecture: arm64")
	requireFinding(t, c.Objects[0], arcmigration.Unneeded, "spec.source.helm.values.maxRunners", "parameter maxRunners")
	requireFinding(t, c.Objects[0], arcmigration.Changed, "spec.source.helm.parameters[1].value", "Runner.Listener")
	c.silent(arcmigration.Dropped, "spec.source.helm.parameters[3]")
}

// What tools say beside the values is not lost either: what changes the result is dropped, the rest is the tool's.
func TestConvert_M7_TheRestOfAReleaseIsSpokenOf(t *testing.T) {
	c := check(t, fluxHead+"  postRenderers: [{kustomize: {patches: []}}]\n  suspend: true\n  values:\n    other: {a: b}\n    runners:\n"+indent(setValues, 6), arcmigration.Options{})
	requireFinding(t, c.Objects[0], arcmigration.Dropped, "spec.postRenderers", "")
	requireFinding(t, c.Objects[0], arcmigration.Unneeded, "spec.suspend", "of the HelmRelease")
	requireFinding(t, c.Objects[0], arcmigration.Unneeded, "spec.values.other", "a chart other than")
}

// Releases of other charts, and what the chart of scale sets makes beside its own object, are passed over.
func TestConvert_M7_OtherObjectsArePassedOver(t *testing.T) {
	for name, content := range map[string]string{
		"a chart other than":      fluxHead + "  chart: {spec: {chart: prometheus}}\n  values: {replicas: 2}\n",
		"the controller's chart":  fluxHead + "  chart: {spec: {chart: gha-runner-scale-set-controller}}\n  values: {replicaCount: 2}\n",
		"another application":     argoHead + "  source: {path: apps/web}\n",
		"a source of charts":      "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: x}\nspec: {url: oci://ghcr.io/actions/actions-runner-controller-charts/gha-runner-scale-set}\n",
		"a source with a chart":   "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmChart\nmetadata: {name: x}\nspec: {chart: gha-runner-scale-set}\n",
		"an owned object":         "apiVersion: v1\nkind: Secret\nmetadata: {name: x, ownerReferences: [{apiVersion: actions.github.com/v1alpha1, kind: AutoscalingRunnerSet, name: x}]}\n",
		"a scaler of runners":     "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: x}\nspec: {scaleTargetRef: {apiVersion: actions.summerwind.dev/v1alpha1, kind: RunnerDeployment, name: x}}\n",
		"a definition":            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\nspec: {properties: {githubConfigUrl: {type: string}}, required: [githubConfigUrl]}\n",
		"a role for the kinds":    "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: x}\nrules: [{apiGroups: [actions.github.com], resources: [autoscalingrunnersets]}]\n",
		"applied by kubectl, too": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, annotations: {a: \"githubConfigUrl: b\"}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := check(t, content, arcmigration.Options{})
			require.False(t, c.Failed(), "%+v", c.Objects)
			require.Equal(t, arcmigration.Ignored, c.Objects[0].Outcome)
		})
	}
}

// A document that is neither a manifest nor values is an error, and not passed over.
func TestConvert_M7_ADocumentWithoutAKindIsAnError(t *testing.T) {
	for name, content := range map[string]string{
		"nothing known":           "replicas: 3\n",
		"nothing at all":          "{}\n",
		"no kind":                 "apiVersion: actions.summerwind.dev/v1alpha1\nmetadata: {name: x}\nspec: {}\n",
		"no apiVersion":           "kind: RunnerDeployment\nmetadata: {name: x}\nspec: {}\n",
		"the controller's values": "replicaCount: 1\nflags: {logLevel: debug}\n",
		"a text":                  "just a text\n",
		"a list":                  "- a\n",
		"an item of a List":       "apiVersion: v1\nkind: List\nitems: [{metadata: {name: x}}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := check(t, content, arcmigration.Options{})
			require.True(t, c.Failed())
			require.Equal(t, arcmigration.NotConverted, c.Objects[0].Outcome)
			switch name {
			case "a text", "a list":
				requireFinding(t, c.Objects[0], arcmigration.Failed, "", "it is not an object")
			case "no apiVersion":
				requireFinding(t, c.Objects[0], arcmigration.Failed, "apiVersion", "has no apiVersion")
			default:
				requireFinding(t, c.Objects[0], arcmigration.Failed, "kind", "has no kind")
			}
		})
	}
	c := check(t, "maxRunners: 3\nminRunners: 1\nrunnerScaleSetName: shop\n", arcmigration.Options{})
	requireFinding(t, c.Objects[0], arcmigration.Failed, "githubConfigUrl", "is missing")
}

// What Helm has yet to fill in is an error with a hint, also where it happens to be YAML; what other programs fill in is not.
func TestConvert_M13_TemplatesAreToBeRenderedFirst(t *testing.T) {
	for path, content := range map[string]string{
		"metadata.name":                 strings.Replace(legacy("dockerEnabled: false"), "name: web", `name: "{{ .Release.Name }}-web"`, 1),
		"spec.template.spec.image":      legacy("dockerEnabled: false", `image: '{{ include "ci.image" . }}'`),
		"runnerScaleSetName":            strings.Replace(setValues, "maxRunners", "runnerScaleSetName: '{{ $.Values.name }}'\nmaxRunners", 1),
		"spec.template.spec.labels[0]":  legacy("dockerEnabled: false", `labels: ["{{- .Values.label | quote }}"]`),
		"spec.template.spec.volumes[0]": legacy("dockerEnabled: false", `volumes: [{"{{ toYaml .Values.volume }}": x}]`),
	} {
		c := check(t, content, arcmigration.Options{})
		require.True(t, c.Failed())
		require.Contains(t, requireFinding(t, c.Objects[0], arcmigration.Failed, path, "").Advice, "render it first, with helm template")
	}
	c := check(t, legacy("dockerEnabled: false", `env: [{name: FORMAT, value: "{{.Names}} ${{ github.sha }}"}]`), arcmigration.Options{})
	require.False(t, c.Failed(), "%+v", c.Objects)

	for _, mode := range []string{"none", "docker"} {
		c = check(t, setValues+"runnerScaleSetName: shop\ncontainerMode: {type: "+mode+"}\n", arcmigration.Options{})
		require.False(t, c.Failed(), "%+v", c.Objects)
		c.hasNot("dind:")
	}
	requireFinding(t, c.Objects[0], arcmigration.ToDo, "containerMode.type", `"docker" is not a container mode`)
}
