package kit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// ShippedJobContainers applies what the chart installs with jobContainers.enabled, for runners in a namespace: the controller's additional
// rights, the Secret of its key, and the admission policies, which the API server enforces when it returns. Call ShippedRoles first.
func (e *Env) ShippedJobContainers(t testing.TB, namespace string) {
	t.Helper()
	manifests, err := helmchart.Render(helmchart.Release{Namespace: SystemNamespace, Values: map[string]any{
		"runners": map[string]any{"namespace": namespace, "createNamespace": false},
		"github":  map[string]any{"appID": 1.0}, "jobContainers": map[string]any{"enabled": true},
	}})
	require.NoError(t, err)
	objects, err := helmchart.Objects(helmchart.Under(manifests, "templates/rbac/jobcontainers.yaml", "templates/admission/jobcontainers.yaml",
		"templates/controller/jobcontainers.yaml"))
	require.NoError(t, err)
	admin, policies := e.Client(t), 0
	for _, object := range objects {
		if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") { // one of each namespace, in one cluster
			policies++
			object.SetName(object.GetName() + "-" + namespace)
			if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
				require.NoError(t, unstructured.SetNestedField(object.Object, object.GetName(), "spec", "policyName"))
			}
		}
		if err := admin.Create(t.Context(), object); !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
	require.Equal(t, 4, policies, "two policies and their bindings")
	e.awaitWarnings(t, "bullpen-added-containers-"+namespace, "bullpen-job-containers-"+namespace)
}

// awaitWarnings waits until the API server has checked the types of policies, and fails if it has found anything.
func (e *Env) awaitWarnings(t testing.TB, names ...string) {
	t.Helper()
	policies := e.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	for _, name := range names {
		require.Eventually(t, func() bool {
			policy, err := policies.Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			if policy.Status.ObservedGeneration != policy.Generation || policy.Status.TypeChecking == nil {
				return false
			}
			require.Empty(t, policy.Status.TypeChecking.ExpressionWarnings, name)
			return true
		}, patience, interval, "the types of policy %s are never checked", name)
	}
}
