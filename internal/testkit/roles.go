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

// runnersNamespace is the name that the product's manifests have for the namespace of the runners.
const runnersNamespace = "bullpen-runners"

// ShippedRoles applies the roles that the product ships, and the disruption budget, with the test's namespace in the
// place of bullpen-runners, so that a test runs under exactly what an installation grants (NET-8).
func (e *Env) ShippedRoles(t testing.TB, namespace string) {
	t.Helper()
	roles, err := charts.RBAC()
	require.NoError(t, err)
	objects, err := manifests(roles, runnersNamespace, namespace)
	require.NoError(t, err)
	admission, err := charts.Admission()
	require.NoError(t, err)
	guards, err := manifests(admission, runnersNamespace, namespace)
	require.NoError(t, err)
	for _, guard := range guards {
		if guard.GetNamespace() == namespace { // the others hold for the whole cluster, since its start
			objects = append(objects, guard)
		}
	}
	admin := e.Client(t)
	for _, object := range objects {
		if err := admin.Create(t.Context(), object); !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
}

// manifests reads the objects of files, with one text in the place of another.
func manifests(files []charts.File, old, replacement string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, file := range files {
		content := strings.ReplaceAll(string(file.Content), old, replacement)
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(content)), 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}
