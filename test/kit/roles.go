package kit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// SystemNamespace is where the chart's ServiceAccounts of ShippedRoles are.
const SystemNamespace = "bullpen-system"

// ShippedRoles applies the roles that the chart installs, and the disruption budget, for runners in a namespace, so that a
// test runs under exactly what an installation grants (NET-8).
func (e *Env) ShippedRoles(t testing.TB, namespace string) {
	t.Helper()
	e.shippedRoles(t, namespace, nil)
}

// ShippedMacRoles is ShippedRoles with what preparing Macs takes: the controller may get these Secrets of SystemNamespace. The first call of
// a test process decides which.
func (e *Env) ShippedMacRoles(t testing.TB, namespace string, secrets ...string) {
	t.Helper()
	e.shippedRoles(t, namespace, macHosts(secrets...))
}

func macHosts(secrets ...string) map[string]any {
	names := make([]any, len(secrets))
	for i, name := range secrets {
		names[i] = name
	}
	return map[string]any{"enabled": true, "secrets": names}
}

func (e *Env) shippedRoles(t testing.TB, namespace string, macs map[string]any) {
	t.Helper()
	objects, err := shipped(map[string]any{"namespace": namespace, "createNamespace": false}, macs, "templates/rbac/", "templates/admission/")
	require.NoError(t, err)
	system := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": SystemNamespace},
	}}
	admin := e.Client(t)
	for _, object := range append([]*unstructured.Unstructured{system}, objects...) {
		if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			continue // they hold for all tests, since the control plane's start
		}
		if err := admin.Create(t.Context(), object); !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
}

// shipped renders part of the chart, for some values of the runners, and of Macs if there are any.
func shipped(runners, macs map[string]any, templates ...string) ([]*unstructured.Unstructured, error) {
	values := map[string]any{"runners": runners, "github": map[string]any{"appID": 1.0}}
	if macs != nil {
		values["macHosts"] = macs
	} else { // what is for Macs alone is tried without the rights on Secrets that these take
		values["selfRegistering"] = map[string]any{"enabled": true}
	}
	manifests, err := helmchart.Render(helmchart.Release{Namespace: SystemNamespace, Values: values})
	if err != nil {
		return nil, err
	}
	return helmchart.Objects(helmchart.Under(manifests, templates...))
}
