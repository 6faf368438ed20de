package arcmigration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli/arcmigration"
)

func rendered(name, set, group, labels string) string {
	return "apiVersion: actions.github.com/v1alpha1\nkind: AutoscalingRunnerSet\nmetadata: {name: " + name + "}\nspec:\n  githubConfigUrl: https://github.com/acme\n  githubConfigSecret: gh\n  runnerScaleSetName: " + set +
		"\n  runnerGroup: " + group + "\n  runnerScaleSetLabels: [" + labels + "]\n  maxRunners: 3\n  template: {spec: {" + githubsRunner + "}}\n"
}

func together(options arcmigration.Options, files ...string) *arcmigration.Result {
	var inputs []arcmigration.Input
	for i, content := range files {
		inputs = append(inputs, arcmigration.Input{Name: string(rune('a'+i)) + ".yaml", Content: []byte(content)})
	}
	options.Namespace = "bullpen-runners"
	return arcmigration.Convert(inputs, options)
}

// Two scale sets of one name, in two runner groups and in two files, are no two pools that each keep the other from its jobs.
func TestConvert_R4_TwoPoolsOfOneLabelAreRefused(t *testing.T) {
	for name, files := range map[string][]string{
		"two groups":              {rendered("shop-a", "shop", "a", ""), rendered("shop-b", "shop", "b", "")},
		"one file":                {rendered("shop-a", "shop", "a", "") + "---\n" + rendered("shop-b", "SHOP", "b", "")},
		"values":                  {strings.Replace(setValues, "maxRunners", "runnerScaleSetName: shop\nmaxRunners", 1), rendered("other", "shop", "b", "")},
		"a name that is a label":  {rendered("shop-a", "shop", "a", ""), rendered("web", "web", "b", "shop")},
		"a label that is a name":  {rendered("web", "web", "b", "gpu, shop"), rendered("shop-a", "shop", "a", "")},
		"two releases of the set": {fluxHead + "  values:\n" + indent(setValues, 4), argoSet + "      valuesObject:\n" + indent(setValues, 8)},
	} {
		t.Run(name, func(t *testing.T) {
			result := together(arcmigration.Options{}, files...)
			require.True(t, result.Failed())
			require.Equal(t, 1, strings.Count(output(t, result), "kind: RunnerPool"))
			require.Equal(t, arcmigration.NotConverted, result.Objects[1].Outcome)
			said := ""
			for _, finding := range result.Objects[1].Findings {
				if finding.Verdict == arcmigration.Failed {
					said += finding.Reason + finding.Advice
					require.Positive(t, finding.Line)
				}
			}
			require.Contains(t, said, "the label shop")
			require.Contains(t, said, "--to RunnerDeployment")
		})
	}
	result := together(arcmigration.Options{To: "RunnerDeployment"}, rendered("shop-a", "shop", "a", ""), rendered("shop-b", "shop", "b", ""))
	require.False(t, result.Failed(), "%+v", result.Objects)
	text := output(t, result)
	require.Equal(t, 2, strings.Count(text, "kind: RunnerDeployment"))
	require.Contains(t, text, "group: a\n")
	require.Contains(t, text, "group: b\n")
	requireFinding(t, result.Objects[1], arcmigration.Changed, "spec.runnerScaleSetName", "would create a runner for each job")
}

// A further label that two pools have is to be seen to at both, and the command does not exit with 0.
func TestConvert_R4_ASharedLabelIsSaidOfBoth(t *testing.T) {
	result := together(arcmigration.Options{}, rendered("a", "a", "x", "gpu"), rendered("b", "b", "x", "cuda, GPU"))
	require.True(t, result.Failed())
	require.Equal(t, 1, result.Conflicts)
	require.Equal(t, 2, strings.Count(output(t, result), "kind: RunnerPool"))
	requireFinding(t, result.Objects[0], arcmigration.ToDo, "spec.runnerScaleSetLabels[0]", "b.yaml")
	requireFinding(t, result.Objects[1], arcmigration.ToDo, "spec.runnerScaleSetLabels[1]", "a.yaml")
	require.Contains(t, output(t, result), "# TODO: spec.runnerScaleSetLabels[1]: the pool of ")

	require.False(t, together(arcmigration.Options{}, rendered("a", "a", "x", "gpu"), rendered("b", "b", "x", "cuda")).Failed())
}

// Runners that register by themselves and a pool serve the same jobs, if they share a label.
func TestConvert_R4_APoolAndItsLikeAmongRunners(t *testing.T) {
	result := together(arcmigration.Options{}, legacy("dockerEnabled: false", "labels: [shop, linux]"), rendered("shop", "shop", "a", "linux"))
	require.True(t, result.Failed())
	requireFinding(t, result.Objects[0], arcmigration.ToDo, "spec.template.spec.labels[0]", "b.yaml")

	result = together(arcmigration.Options{}, legacy("dockerEnabled: false", "labels: [shop]"), strings.Replace(legacy("dockerEnabled: false", "labels: [shop]"), "name: web", "name: web2", 1))
	require.False(t, result.Failed(), "GitHub gives a job to any of them")
}

// A RunnerDeployment has all that a scale set's pod has, its group, and the labels that self-registering runners have.
func TestConvert_M8_ToRunnerDeployment(t *testing.T) {
	content := string(examples(t)["corpus/values-gpu.yaml"])
	c := check(t, content, arcmigration.Options{To: "RunnerDeployment"})
	require.False(t, c.Failed(), "%+v", c.Objects)
	c.has("kind: RunnerDeployment", "nvidia.com/gpu: 1", "name: driver-check", "name: metrics", "serviceAccountName: training", "claimName: models", "- gpu\n      - cuda\n", "organization: acme", "secretName: app", "workload: gpu", "maxReplicas: 2")
	c.says(arcmigration.Changed, "runnerScaleSetName", 3, "label self-hosted")

	c = check(t, string(examples(t)["corpus/values-dind.yaml"]), arcmigration.Options{To: "RunnerDeployment", RuntimeClass: "vm"})
	c.has("containerMode: Dind", "runtimeClassName: vm", "group: builders", "minIdle: 2")
}
