package docs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

var (
	link    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	span    = regexp.MustCompile("`[^`\n]+`")
	named   = regexp.MustCompile(`<a id="([^"]+)">`)
	noWord  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are those of a page's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	times := map[string]int{}
	for _, found := range heading.FindAllStringSubmatch(unfenced(text), -1) {
		title := noWord.ReplaceAllString(strings.ToLower(linked.ReplaceAllString(found[1], "$1")), "")
		anchor := strings.ReplaceAll(strings.TrimSpace(title), " ", "-")
		times[anchor]++
		if again := times[anchor]; again > 1 {
			anchor = fmt.Sprintf("%s-%d", anchor, again-1)
		}
		all[anchor] = true
	}
	for _, found := range named.FindAllStringSubmatch(text, -1) {
		all[found[1]] = true
	}
	return all
}

// prose is a page without what is between fences and backquotes.
func prose(text string) string { return span.ReplaceAllString(unfenced(text), "code") }

func unfenced(text string) string {
	parts := strings.Split(text, "\n```")
	var b strings.Builder
	for i := 0; i < len(parts); i += 2 {
		b.WriteString(parts[i] + "\n")
	}
	return b.String()
}

// A link of a page leads to a file, and to a heading of it.
func TestLinks_LeadSomewhere(t *testing.T) {
	all := pages(t)
	looked := 0
	var dead []string
	for name, text := range all {
		for _, found := range link.FindAllStringSubmatch(prose(text), -1) {
			if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
				continue
			}
			looked++
			to := name
			if found[1] != "" {
				to = path.Join(path.Dir(name), found[1])
				if _, err := os.Stat(filepath.Join(top, to)); err != nil {
					dead = append(dead, name+" links "+found[1])
					continue
				}
			}
			if found[2] != "" && strings.HasSuffix(to, ".md") && !anchors(all[to])[found[2]] {
				dead = append(dead, name+" links the heading #"+found[2]+" of "+to+", which it has not")
			}
		}
	}
	require.Empty(t, dead)
	require.Greater(t, looked, 300)
}

func TestAnchors(t *testing.T) {
	require.Equal(t, map[string]bool{"a-b": true, "a-b-1": true, "its-bullpen-up-is-it": true},
		anchors("# A `b`\n\n## A b\n\n```\n# no\n```\n\n### It's [bullpen up](x.md), is it?\n"))
}

// Every page can be reached from the index, without knowing its name.
func TestIndex_LeadsToEveryPage(t *testing.T) {
	all := pages(t)
	seen := map[string]bool{}
	var walk func(name string)
	walk = func(name string) {
		if seen[name] || all[name] == "" {
			return
		}
		seen[name] = true
		for _, found := range link.FindAllStringSubmatch(prose(all[name]), -1) {
			to := path.Join(path.Dir(name), found[1])
			if !strings.HasSuffix(to, ".md") {
				to = path.Join(to, "README.md")
			}
			walk(to)
		}
	}
	walk("docs/README.md")
	var lost []string
	for name := range all {
		if strings.HasPrefix(name, "docs/") && !strings.HasPrefix(name, "docs/adr/") {
			if !seen[name] {
				lost = append(lost, name)
			}
		}
	}
	require.Empty(t, lost, "no link leads there from docs/README.md")
}

// example is a YAML document of a page or of examples/.
type example struct {
	at   string
	text string
}

func examples(t *testing.T) []example {
	t.Helper()
	var all []example
	for _, b := range blocks(t) {
		looks := regexp.MustCompile(`^(#.*\n)*[A-Za-z]+:( |\n)`).MatchString(b.Text + "\n")
		if b.Language == "yaml" || b.Language == "" && looks && len(Commands(b)) == 0 {
			for _, document := range strings.Split(b.Text, "\n---\n") {
				all = append(all, example{b.At(), document})
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(top, "examples/*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, document := range strings.Split(string(text), "\n---\n") {
			all = append(all, example{file, document})
		}
	}
	return all
}

// YAML in pages is valid: objects for the API server, values for the chart.
func TestYAML_IsTakenByTheAPIServerOrTheChart(t *testing.T) {
	env := kit.Cluster(t)
	kube, err := client.New(env.Config, client.Options{})
	require.NoError(t, err)
	for _, name := range []string{"bullpen-system", "bullpen-runners"} {
		namespace := &unstructured.Unstructured{}
		namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
		namespace.SetName(name)
		require.NoError(t, client.IgnoreAlreadyExists(kube.Create(t.Context(), namespace)))
	}
	ofValues, err := os.ReadFile(filepath.Join(top, "charts/bullpen/values.yaml"))
	require.NoError(t, err)
	var defaults map[string]any
	require.NoError(t, yaml.Unmarshal(ofValues, &defaults))
	objects, values := 0, 0
	var problems []string
	for _, one := range examples(t) {
		var content map[string]any
		if err := yaml.Unmarshal([]byte(one.text), &content); err != nil {
			problems = append(problems, one.at+": "+err.Error())
			continue
		}
		switch kind, _ := content["kind"].(string); {
		case len(content) == 0 || kind == "Cluster": // comments; an operator's own kind, which the API server does not know
		case kind == "Config":
			if _, err := clientcmd.Load([]byte(one.text)); err != nil {
				problems = append(problems, one.at+": "+err.Error())
			}
		case content["apiVersion"] != nil:
			objects++
			object := &unstructured.Unstructured{Object: content}
			if object.GetNamespace() == "" {
				object.SetNamespace(metav1.NamespaceDefault)
			}
			err := kube.Create(t.Context(), object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
			if client.IgnoreAlreadyExists(err) != nil {
				problems = append(problems, one.at+": "+err.Error())
			}
		case defaults[first(strings.Fields(one.text))] == nil && !inAll(content, defaults):
			// a workflow, a kubeconfig, a host's configuration: tests of their own packages read those
		default:
			values++
			github, _ := content["github"].(map[string]any)
			if github == nil {
				content["github"] = map[string]any{"appID": float64(1)}
			}
			_, err := helmchart.Render(helmchart.Release{Values: content, APIVersions: []string{"monitoring.coreos.com/v1"}})
			if err != nil {
				problems = append(problems, one.at+": "+err.Error())
			}
		}
	}
	require.Empty(t, problems)
	require.Greater(t, objects, 6)
	require.Greater(t, values, 3)
}

// inAll reports whether each key of a document is one of the chart's.
func inAll(content, defaults map[string]any) bool {
	for key := range content {
		if _, is := defaults[key]; !is {
			return false
		}
	}
	return true
}
