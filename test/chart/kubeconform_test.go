package chart

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/yannh/kubeconform/pkg/validator"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/openapi"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// skipped are the kinds for which kubeconform has no schema here, with the reason.
var skipped = map[string]struct{}{
	"ServiceMonitor": {}, "PrometheusRule": {}, // the Prometheus operator's, whose definitions are not installed
}

// schemas writes, for each kind of the objects, the API server's own schema to a file for kubeconform. It has all that it
// refers to, and is closed, so that a field that does not exist is found.
func schemas(t *testing.T, objects []*unstructured.Unstructured) (location string) {
	t.Helper()
	dir := t.TempDir()
	paths, err := kit.Cluster(t).Kube.Discovery().OpenAPIV3().Paths()
	require.NoError(t, err)
	written := map[string]bool{}
	for _, object := range objects {
		if _, skip := skipped[object.GetKind()]; skip || written[object.GroupVersionKind().String()] {
			continue
		}
		written[object.GroupVersionKind().String()] = true
		path := "apis/" + object.GetAPIVersion()
		if !strings.Contains(object.GetAPIVersion(), "/") {
			path = "api/" + object.GetAPIVersion()
		}
		require.Contains(t, paths, path, "the API server does not serve it")
		schema := schemaOf(t, paths[path], object)
		data, err := json.Marshal(schema)
		require.NoError(t, err)
		name := strings.ToLower(object.GetKind()) + "-" + strings.ReplaceAll(object.GetAPIVersion(), "/", "-") + ".json"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir + `/{{ .ResourceKind }}-{{ if ne .Group .ResourceAPIVersion }}{{ .Group }}-{{ end }}{{ .ResourceAPIVersion }}.json`
}

func schemaOf(t *testing.T, group openapi.GroupVersion, object *unstructured.Unstructured) map[string]any {
	t.Helper()
	raw, err := group.Schema(runtime.ContentTypeJSON)
	require.NoError(t, err)
	var document struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	require.NoError(t, json.Unmarshal(raw, &document))
	kind, found := object.GroupVersionKind(), ""
	for name, schema := range document.Components.Schemas {
		list, _ := schema["x-kubernetes-group-version-kind"].([]any)
		for _, one := range list {
			of, _ := one.(map[string]any)
			if of["group"] == kind.Group && of["version"] == kind.Version && of["kind"] == kind.Kind {
				found = name
			}
		}
		closed(schema)
	}
	require.NotEmpty(t, found, "no schema of %s", kind)
	return map[string]any{"$ref": "#/components/schemas/" + found, "components": map[string]any{"schemas": document.Components.Schemas}}
}

// closed has a schema allow the fields that it names, and no others, all the way down.
func closed(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		_, named := schema["properties"].(map[string]any)
		_, said := schema["additionalProperties"]
		if open, _ := schema["x-kubernetes-preserve-unknown-fields"].(bool); named && !said && !open {
			schema["additionalProperties"] = false
		}
		for _, inner := range schema {
			closed(inner)
		}
	case []any:
		for _, inner := range schema {
			closed(inner)
		}
	}
}

// kubeconform finds nothing in what the chart renders to, with nothing and with everything turned on, by the schemas of a real API server.
func TestObjects_PassKubeconform(t *testing.T) {
	for name, text := range map[string]string{"least": least, "everything": everything} {
		objects := render(t, helmchart.Release{Upgrade: true}, text)
		check, err := validator.New([]string{schemas(t, objects)}, validator.Opts{Strict: true, SkipKinds: skipped})
		require.NoError(t, err)
		for _, object := range objects {
			require.Empty(t, problems(t, check, object), "%s: %s", name, id(object))
		}
		// The check can fail.
		wrong := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(find(t, objects, "Deployment bullpen-system/bullpen-server"))}
		require.NoError(t, unstructured.SetNestedField(wrong.Object, int64(1), "spec", "template", "spec", "replica"))
		require.NotEmpty(t, problems(t, check, wrong))
		wrong = &unstructured.Unstructured{Object: runtime.DeepCopyJSON(find(t, objects, "Deployment bullpen-system/bullpen-server"))}
		require.NoError(t, unstructured.SetNestedField(wrong.Object, "two", "spec", "replicas"))
		require.NotEmpty(t, problems(t, check, wrong))
	}
}

func problems(t *testing.T, check validator.Validator, object *unstructured.Unstructured) []string {
	t.Helper()
	text, err := yaml.Marshal(object.Object)
	require.NoError(t, err)
	var found []string
	for _, result := range check.Validate(id(object), io.NopCloser(strings.NewReader(string(text)))) {
		if result.Status == validator.Invalid || result.Status == validator.Error {
			found = append(found, result.Err.Error())
		}
	}
	return found
}
