package arcmigration_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli/arcmigration"
)

// checked is what was made of one file.
type checked struct {
	*arcmigration.Result
	t    *testing.T
	text string
}

func (c checked) has(parts ...string) {
	c.t.Helper()
	for _, part := range parts {
		require.Contains(c.t, c.text, part)
	}
}

func (c checked) hasNot(parts ...string) {
	c.t.Helper()
	for _, part := range parts {
		require.NotContains(c.t, c.text, part)
	}
}

// says requires a finding of the first object, at a line (0: any).
func (c checked) says(verdict arcmigration.Verdict, path string, line int, says string) {
	c.t.Helper()
	finding := requireFinding(c.t, c.Objects[0], verdict, path, says)
	if line > 0 {
		require.Equal(c.t, line, finding.Line, "%+v", finding)
		require.Positive(c.t, finding.Column)
	}
}

// silent requires that no finding says that of a field or of what is in it.
func (c checked) silent(verdict arcmigration.Verdict, path string) {
	c.t.Helper()
	for _, finding := range c.Objects[0].Findings {
		require.False(c.t, finding.Verdict == verdict && strings.HasPrefix(finding.Path, path), "%+v", finding)
	}
}

// Each case that was reported becomes what its first comment calls right.
func TestConvert_ReportedCasesComeOutRight(t *testing.T) {
	cases := map[string]func(checked){
		"a01-values-handwritten-dind": func(c checked) { // M1
			c.has("kind: RunnerPool", "dind: {}", "runtimeClassName: kata")
			c.hasNot("DOCKER_HOST", "/var/run", "dind-sock")
			c.says(arcmigration.Dropped, "template.spec.initContainers[1].args[2]", 16, "arguments of its own")
			c.silent(arcmigration.Unneeded, "template.spec.initContainers[1].args[2]")
		},
		"a02-values-handwritten-kubernetes": func(c checked) { // M2
			c.has("kind: RunnerDeployment", "containerMode: Kubernetes", "serviceAccountName: runner-hooks", "storageClassName: fast")
			c.hasNot("kind: RunnerPool", "k8s/index.js")
		},
		"a03-pool-serviceaccount-cloud-identity": func(c checked) { // M4
			c.says(arcmigration.Dropped, "template.spec.serviceAccountName", 8, "cloud identity")
		},
		"a05-windows-runnerdeployment": func(c checked) { // M5
			require.Empty(c.t, c.text)
			c.says(arcmigration.Failed, `spec.template.spec.nodeSelector["kubernetes.io/os"]`, 11, "Windows")
		},
		"a06-labels-of-the-system": func(c checked) { // M3
			c.has("- self-hosted\n      - Linux\n      - X64\n      - aks\n")
			c.says(arcmigration.Changed, "spec.template.spec.labels", 12, "self-hosted, Linux and X64")
		},
		"a07-threshold-of-one": func(c checked) { c.has("upAbove: 99\n") }, // M6
		"a08-helmrelease": func(c checked) { // M7
			c.has("kind: RunnerPool", "name: shop\n", "- shop\n", "maxReplicas: 3", "minIdle: 1", "scope: Repository")
		},
		"a09-argocd": func(c checked) { c.has("kind: RunnerPool", "- shop\n", "maxReplicas: 3") }, // M7
		"a11-mode-none": func(c checked) { // M13
			c.has("kind: RunnerPool")
			c.says(arcmigration.Unneeded, "containerMode.type", 7, `"none" is not a container mode`)
		},
		"a12-kubernetes-without-claim": func(c checked) { // M12
			c.says(arcmigration.Failed, "containerMode.type", 10, "kubernetesModeWorkVolumeClaim")
			for _, finding := range c.Objects[0].Findings {
				require.NotContains(c.t, finding.Reason+finding.Advice, "workVolumeClaimTemplate")
			}
		},
		"a13-lines": func(c checked) { // M12
			c.says(arcmigration.Unneeded, "listenerTemplate", 6, "")
			c.says(arcmigration.Changed, "template.metadata", 12, "added to those of Bullpen")
			c.has("a: b")
			c.says(arcmigration.Dropped, "template.spec.securityContext", 18, "")
		},
		"a14-kubectl-get-output": func(c checked) { // M10
			require.False(c.t, c.Failed())
			require.Zero(c.t, c.Left(), "%+v", c.Objects)
		},
		"a15-scale-set-gets-self-hosted": func(c checked) { // M8
			c.says(arcmigration.Changed, "runnerScaleSetName", 4, "label self-hosted")
		},
		"a16-experimental-chart": func(c checked) { // M7
			c.says(arcmigration.Failed, "scaleset.name", 5, "gha-runner-scale-set-experimental")
		},
		"a18-limits-become-requests": func(c checked) { // M9
			c.says(arcmigration.ToDo, "template.spec.containers[0].resources.requests.cpu", 6, "64 CPUs instead of 55")
			c.says(arcmigration.ToDo, "template.spec.containers[0].resources.requests.memory", 6, "256Gi of memory instead of 200Gi")
		},
		"a20-no-url": func(c checked) { // M12
			c.says(arcmigration.Failed, "spec.githubConfigUrl", 5, "githubConfigUrl is missing")
		},
		"a21-dropped-what": func(c checked) { // M11
			finding := requireFinding(c.t, c.Objects[0], arcmigration.Dropped, "template.spec.initContainers", "")
			require.Equal(c.t, []string{"kube-init", "ls"}, finding.Names)
			require.Equal(c.t, 7, finding.Line)
		},
		"a22-template-that-is-yaml": func(c checked) { // M13
			require.Len(c.t, c.Problems, 1)
			require.Contains(c.t, c.Problems[0], "render it first, with helm template")
		},
	}
	names, err := filepath.Glob("testdata/cases/*.yaml")
	require.NoError(t, err)
	require.Len(t, names, len(cases), "each case has its check")
	for name, check := range cases {
		t.Run(name, func(t *testing.T) {
			content := examples(t)[filepath.Join("cases", name+".yaml")]
			require.NotEmpty(t, content)
			result := arcmigration.Convert([]arcmigration.Input{{Name: name + ".yaml", Content: content}}, arcmigration.Options{Namespace: "bullpen-runners"})
			check(checked{Result: result, t: t, text: output(t, result)})
		})
	}
}
