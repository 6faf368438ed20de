package arcmigration_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli/arcmigration"
)

func convert(content string, options arcmigration.Options) *arcmigration.Result {
	return arcmigration.Convert([]arcmigration.Input{{Name: "x.yaml", Content: []byte(content)}}, options)
}

const one = `apiVersion: actions.summerwind.dev/v1alpha1
kind: Runner
metadata: {name: one, namespace: ci}
spec: {repository: acme/shop, dockerEnabled: false, image: "ghcr.io/actions/actions-runner:latest"}
`

// What cannot be read is said with the file, the document and the line; what can be is converted nevertheless.
func TestConvert_FilesThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct{ after, want string }{
		"no YAML":          {"a: [", "x.yaml, document 2: "},
		"a template":       {"name: {{ .Values.name }}: x", "render it first, with helm template"},
		"a key twice":      {"a: 1\na: 2", `duplicate key "a"`},
		"a key of a list":  {"[a]: 1", "a key is not a string"},
		"itself":           {"a: &a [*a]", "not a manifest"},
		"a billion values": {"a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]", "not a manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			result := convert(one+"---\n"+c.after, arcmigration.Options{})
			require.True(t, result.Failed())
			require.Len(t, result.Problems, 1)
			require.Contains(t, result.Problems[0], "x.yaml, document 2: ")
			require.Contains(t, result.Problems[0], c.want)
			require.Contains(t, output(t, result), "name: one")
		})
	}
}

func TestConvert_OptionsOfTheCluster(t *testing.T) {
	result := convert(strings.Replace(one, "dockerEnabled: false", "dockerEnabled: true", 1), arcmigration.Options{Namespace: "runners", RuntimeClass: "our-vm"})
	text := output(t, result)
	require.Contains(t, text, "namespace: runners\n")
	require.Contains(t, text, "runtimeClassName: our-vm\n")
	require.Zero(t, result.Left(), "nothing is left to see to: %v", result.Objects)
}

// Two objects that would be one overwrite nothing.
func TestConvert_TwinsAreRefused(t *testing.T) {
	result := convert(one+"---\n"+strings.Replace(one, "namespace: ci", "namespace: cd", 1), arcmigration.Options{Namespace: "runners"})
	require.True(t, result.Failed())
	require.Equal(t, 1, strings.Count(output(t, result), "name: one\n"))
	requireFinding(t, result.Objects[1], arcmigration.Failed, "metadata.name", "was already converted from x.yaml, document 1, line 1")
}

// An autoscaler of which nothing comes leaves a trace on its target.
func TestConvert_AFailedAutoscalerIsSaidOfItsTarget(t *testing.T) {
	deployment := `apiVersion: actions.summerwind.dev/v1alpha1
kind: RunnerDeployment
metadata: {name: one, namespace: ci}
spec: {template: {spec: {repository: acme/shop, dockerEnabled: false, image: "ghcr.io/actions/actions-runner:latest"}}}
`
	autoscaler := `apiVersion: actions.summerwind.dev/v1alpha1
kind: HorizontalRunnerAutoscaler
metadata: {name: one, namespace: ci}
spec: {scaleTargetRef: {name: one}, minReplicas: 1}
`
	result := convert(deployment+"---\n"+autoscaler, arcmigration.Options{})
	require.True(t, result.Failed())
	require.Contains(t, output(t, result), "its autoscaler could not be converted")

	// And the other way round: of a target that is refused, there is no autoscaler.
	result = convert(strings.Replace(deployment, "repository: acme/shop", "repository: shop", 1)+"---\n"+strings.Replace(autoscaler, "minReplicas", "maxReplicas", 1), arcmigration.Options{})
	require.Empty(t, output(t, result))
	require.Equal(t, arcmigration.NotConverted, result.Objects[1].Outcome)

	// Also where that shows only when all of it is put together.
	result = convert(strings.Replace(deployment, "dockerEnabled", "labels: [big machine], dockerEnabled", 1)+"---\n"+strings.Replace(autoscaler, "minReplicas", "maxReplicas", 1), arcmigration.Options{})
	require.Empty(t, output(t, result))
	require.Equal(t, arcmigration.NotConverted, result.Objects[1].Outcome)
	require.Nil(t, result.Objects[1].Into)

	// Two of one target are not mixed.
	both := strings.Replace(autoscaler, "minReplicas", "maxReplicas", 1)
	result = convert(deployment+"---\n"+both+"---\n"+strings.Replace(both, "{name: one, namespace", "{name: two, namespace", 1), arcmigration.Options{})
	require.Equal(t, arcmigration.Merged, result.Objects[1].Outcome)
	require.Equal(t, arcmigration.NotConverted, result.Objects[2].Outcome)
}

// requireFinding finds what is said of a field, and returns it.
func requireFinding(t testing.TB, object arcmigration.Object, verdict arcmigration.Verdict, path, says string) arcmigration.Finding {
	t.Helper()
	for _, finding := range object.Findings {
		if finding.Verdict == verdict && finding.Path == path && strings.Contains(finding.Reason+" "+finding.Advice, says) {
			return finding
		}
	}
	require.Failf(t, "no such finding", "%s %s %q in %s: %+v", verdict, path, says, object.Reference, object.Findings)
	return arcmigration.Finding{}
}

// Neither the report nor the output contains credentials that are written into values.
func TestConvert_CredentialsInValuesAreNotRepeated(t *testing.T) {
	result := arcmigration.Convert([]arcmigration.Input{{Name: "values.yaml", Content: examples(t)["values.yaml"]}}, arcmigration.Options{})
	report, err := json.Marshal(&result.Report)
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, result.Print(&text))
	for _, printed := range []string{output(t, result), string(report), text.String()} {
		require.NotContains(t, printed, "not-for-anybody")
	}
	require.Contains(t, string(examples(t)["values.yaml"]), "not-for-anybody")
}

// A name with a newline ends no comment, and moves no cursor.
func TestConvert_NamesStayInTheirLine(t *testing.T) {
	result := arcmigration.Convert([]arcmigration.Input{{Name: "a\nkind: Evil", Content: []byte(one)}}, arcmigration.Options{})
	require.NotContains(t, output(t, result), "\nkind: Evil")
	result = convert(strings.Replace(one, "name: one", `name: "\e[2Jone"`, 1), arcmigration.Options{})
	var text bytes.Buffer
	require.NoError(t, result.Print(&text))
	require.NotContains(t, text.String(), "\x1b")
}

// Each field of the legacy runners that is not carried has a reason of its own; the sentence for unknown fields is for those.
func TestConvert_KnownFieldsHaveReasonsOfTheirOwn(t *testing.T) {
	result := arcmigration.Convert([]arcmigration.Input{{Name: "x", Content: examples(t)["deployment.yaml"]}}, arcmigration.Options{})
	var without []string
	for _, object := range result.Objects {
		for _, finding := range object.Findings {
			if strings.HasPrefix(finding.Reason, "Bullpen has no equivalent") {
				without = append(without, finding.Path)
			}
		}
	}
	require.Equal(t, []string{"spec.template.spec.volumes[1].emptyDir.shareWith", "spec.template.spec.somethingNew"}, without)
}

// What would end a runner in the middle of a job is dropped, so that the controller makes pods of what is left.
func TestConvert_NothingThatEndsARunnerIsCarried(t *testing.T) {
	result := convert(`apiVersion: actions.summerwind.dev/v1alpha1
kind: RunnerSet
metadata: {name: one, namespace: bullpen-runners}
spec:
  repository: acme/shop
  dockerEnabled: false
  template:
    spec:
      activeDeadlineSeconds: 60
      tolerations: [{key: ci, operator: Exists, tolerationSeconds: 60}]
      containers:
        - name: runner
          image: ghcr.io/actions/actions-runner:latest
          livenessProbe: {exec: {command: [a]}}
          startupProbe: {exec: {command: [a]}}
          readinessProbe: {exec: {command: [a]}}
        - {name: db, image: "example.com/db:1", readinessProbe: {exec: {command: [a]}}, livenessProbe: {exec: {command: [a]}}}
`, arcmigration.Options{})
	require.False(t, result.Failed())
	require.Equal(t, 6, result.Summary[string(arcmigration.Dropped)])
	require.Zero(t, result.Summary[string(arcmigration.ToDo)], "%v", result.Objects)
	require.Equal(t, 1, strings.Count(output(t, result), "livenessProbe"), "that of the database is carried")

	// And what the controller would refuse is said.
	result = convert(strings.Replace(one, "repository", "volumes: [{name: node, hostPath: {path: /}}], repository", 1), arcmigration.Options{Namespace: "ci"})
	require.Equal(t, 1, result.Summary[string(arcmigration.ToDo)])
	require.Contains(t, output(t, result), "# TODO: spec.volumes[0] (node): no pod can be built from it: volume \"node\" is a hostPath")
}

// What runs the results of a conversion is off by default: the report says so once, and --strict does not count it.
func TestConvert_SaysOnceWhatSelfRegisteringRunnersNeed(t *testing.T) {
	const runner = `
apiVersion: actions.summerwind.dev/v1alpha1
kind: Runner
metadata: {name: NAME}
spec: {repository: acme/app, labels: [LABEL], dockerEnabled: false, image: "ghcr.io/actions/actions-runner:latest"}
`
	named := func(name, label string) string {
		return strings.NewReplacer("NAME", name, "LABEL", label).Replace(runner)
	}
	notes := func(manifests ...string) []string {
		result := arcmigration.Convert([]arcmigration.Input{{Name: "in.yaml", Content: []byte(strings.Join(manifests, "---"))}}, arcmigration.Options{Namespace: "bullpen-runners"})
		var text bytes.Buffer
		require.NoError(t, result.Print(&text))
		require.Zero(t, result.Left(), "%s", text.String())
		require.Equal(t, len(result.Notes), strings.Count(text.String(), "\nnote: "), "%s", text.String())
		return result.Notes
	}
	require.Equal(t, []string{"self-registering runners (2 of the results) are ignored unless the chart's value selfRegistering.enabled is true. " +
		"Add to server.otherRunnerLabels: gpu, large"}, notes(named("a", "large"), named("b", "gpu")))
	require.Equal(t, []string{"self-registering runners (1 of the results) are ignored unless the chart's value selfRegistering.enabled is true"},
		notes(named("a", "x64")), "labels of every runner tell nothing apart")
	require.Empty(t, notes("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"))
	pool := "githubConfigUrl: https://github.com/acme/app\nrunnerScaleSetName: shop\nmaxRunners: 3\n"
	require.Empty(t, arcmigration.Convert([]arcmigration.Input{{Name: "values.yaml", Content: []byte(pool)}}, arcmigration.Options{}).Notes, "a RunnerPool needs nothing")
}
