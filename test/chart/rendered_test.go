package chart

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/bullpen-ci/bullpen/charts"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// NET-8: what the one-machine mode applies is what the chart renders to.
func TestRendered_NET8_IsWhatTheChartInstalls(t *testing.T) {
	manifests, err := helmchart.Render(helmchart.Release{Values: values(t, least+"selfRegistering: {enabled: true}\n")})
	require.NoError(t, err)
	wanted, err := helmchart.Objects(helmchart.Under(manifests, "templates/namespace.yaml", "templates/rbac/", "templates/admission/", "templates/networkpolicy.yaml"))
	require.NoError(t, err)
	files, err := charts.Rendered()
	require.NoError(t, err)
	require.ElementsMatch(t, wanted, objectsOf(t, files), "run make generate")

	manifests, err = helmchart.Render(helmchart.Release{Values: values(t, least+"selfRegistering: {enabled: true}\njobContainers: {enabled: true}\n")})
	require.NoError(t, err)
	with, err := helmchart.Objects(helmchart.Under(manifests, "templates/namespace.yaml", "templates/rbac/", "templates/admission/", "templates/networkpolicy.yaml",
		"templates/controller/jobcontainers.yaml"))
	require.NoError(t, err)
	more, err := charts.RenderedJobContainers()
	require.NoError(t, err)
	require.ElementsMatch(t, with, append(objectsOf(t, files), objectsOf(t, more)...), "run make generate")
}

func objectsOf(t *testing.T, files []charts.File) []*unstructured.Unstructured {
	t.Helper()
	var shipped []*unstructured.Unstructured
	for _, file := range files {
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(file.Content), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if len(object.Object) > 0 {
				shipped = append(shipped, object)
			}
		}
	}
	return shipped
}
