package testkit

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/bullpen-ci/bullpen/charts"
)

// ShippedRoles applies the roles that the product ships, with the test's namespace in the place of bullpen-runners, so
// that a test runs under exactly what an installation grants (NET-8).
func (e *Env) ShippedRoles(t testing.TB, namespace string) {
	t.Helper()
	files, err := charts.RBAC()
	require.NoError(t, err)
	admin := e.Client(t)
	for _, file := range files {
		content := strings.ReplaceAll(string(file.Content), "bullpen-runners", namespace)
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(content)), 4096)
		for {
			var object unstructured.Unstructured
			if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err)
			}
			if err := admin.Create(t.Context(), &object); !apierrors.IsAlreadyExists(err) {
				require.NoError(t, err)
			}
		}
	}
}
