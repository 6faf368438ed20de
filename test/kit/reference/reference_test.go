package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

const top = "../../.."

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{top}, path...)...))
	require.NoError(t, err)
	return text
}

// The pages of kinds and values are what the chart has.
func TestPages_AreWhatTheChartHas(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, "charts/bullpen/crds/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var definitions [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		definitions = append(definitions, text)
	}
	pages, err := CRDs(definitions)
	require.NoError(t, err)
	require.Len(t, pages, len(files)+1)
	for name, page := range pages {
		require.Equal(t, string(read(t, "docs/reference/crds", name)), page, "%s: run make generate", name)
	}
	page, err := Configuration(read(t, "charts/bullpen/values.yaml"), read(t, "charts/bullpen/values.schema.json"))
	require.NoError(t, err)
	require.Equal(t, string(read(t, "docs/reference/configuration.md")), page, "run make generate")
}

// A field is shown with its type, default, limits, rules and words, wherever in the schema it is.
func TestCRDs_SayAllOfAField(t *testing.T) {
	pages, err := CRDs([][]byte{[]byte(`
spec:
  group: example.dev
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          description: Thing is one. And more.
          properties:
            spec:
              description: What it should be.
              required: [sizes]
              properties:
                sizes:
                  description: Sizes are <big>.
                  type: array
                  maxItems: 3
                  items:
                    type: object
                    x-kubernetes-validations: [{rule: self.size > 1, message: too small}]
                    properties:
                      size: {type: integer, format: int32, minimum: 1, default: 2, description: Size is a number.}
                      m: {type: string, enum: [a, b]}
                pod: {type: object, properties: {containers: {type: array, items: {type: object, properties: {image: {type: string, description: hidden}}}}}}
`)})
	require.NoError(t, err)
	page := pages["Thing.md"]
	for _, want := range []string{
		"- **`spec.sizes`** (list of object, required, at most 3 entries): Sizes are &lt;big>.\n",
		"  - Rule: *too small* `self.size > 1`\n",
		"  - **`spec.sizes[].size`** (integer int32, at least 1, default `2`): Size is a number.\n",
		"  - **`spec.sizes[].m`** (string, one of `a`, `b`)\n",
		"- **`spec.pod`** (object)\n  - Its fields are Kubernetes' own.\n",
	} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, "hidden")
	require.Contains(t, pages["README.md"], "| [Thing](Thing.md) | Thing is one. |")
}

func TestMetricsOf_ReadsWhatARegistryHas(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "bullpen_x_total", Help: `It is "so".`, ConstLabels: prometheus.Labels{"kind": "a, b"},
	}, []string{"pool", "outcome"}), prometheus.NewGauge(prometheus.GaugeOpts{Name: "bullpen_y", Help: "Y."}), prometheus.NewGauge(prometheus.GaugeOpts{Name: "other", Help: "No."}))
	metrics, err := MetricsOf(registry)
	require.NoError(t, err)
	require.Equal(t, []Metric{
		{Name: "bullpen_x_total", Help: `It is "so".`, Labels: []string{"kind", "pool", "outcome"}}, {Name: "bullpen_y", Help: "Y."},
	}, metrics)
}

// mayBeRead is what a variable of the environment that matters to people is called.
var mayBeRead = regexp.MustCompile(`^(BULLPEN_[A-Z_]+[A-Z]|KUBEBUILDER_ASSETS|KUBECONFIG|NO_COLOR|TERM|TART_HOME|XDG_[A-Z]+_HOME)$`)

// imitations are programs for which the variables of what they imitate count.
var imitations = []string{top + "/internal/dev/tart", top + "/internal/dev/mac"}

// Each variable that the programs name is on the page, and none that they do not name.
func TestVariables_AreThoseOfTheSources(t *testing.T) {
	known, named := map[string]bool{}, map[string]bool{}
	before := ""
	for _, v := range Variables() {
		require.Less(t, before, v.Name, "by name")
		before, known[v.Name] = v.Name, true
	}
	for _, dir := range []string{"cmd", "internal"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(top, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && (entry.Name() == "testdata" || slices.Contains(imitations, filepath.ToSlash(path))) {
				return filepath.SkipDir
			}
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if text, is := n.(*ast.BasicLit); is && text.Kind == token.STRING {
					value, err := strconv.Unquote(text.Value)
					require.NoError(t, err)
					if mayBeRead.MatchString(value) {
						named[value] = true
						require.True(t, known[value], "%s names %s: say in test/kit/reference/environment.go what it is for", path, value)
					}
				}
				return true
			})
			return nil
		}))
	}
	for name := range known {
		if name == "KUBECONFIG" { // client-go does
			continue
		}
		require.True(t, named[name], "nothing reads %s any more", name)
	}
}
