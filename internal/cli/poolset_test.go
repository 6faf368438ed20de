package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/poolchange"
)

// poolAPI is an API server with one pool. Before each patch it does what the test says.
type poolAPI struct {
	t          *testing.T
	spec       map[string]any
	version    int
	managed    []any
	before     func(attempt int)
	refuse     *metav1.Status
	patches    []string
	fieldOwner string
}

func (a *poolAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const path = "/apis/bullpen.dev/v1alpha1/namespaces/runners/runnerpools"
	pool := map[string]any{
		"apiVersion": "bullpen.dev/v1alpha1", "kind": "RunnerPool", "spec": a.spec,
		"metadata": map[string]any{
			"name": "linux", "namespace": "runners", "uid": "u", "generation": 3, "resourceVersion": fmt.Sprint(a.version), "managedFields": a.managed,
		},
	}
	switch r.Method + " " + r.URL.Path {
	case "GET " + path + "/linux":
		a.answer(w, http.StatusOK, pool)
	case "GET " + path:
		a.answer(w, http.StatusOK, map[string]any{"apiVersion": "bullpen.dev/v1alpha1", "kind": "RunnerPoolList", "items": []any{pool}})
	case "POST /apis/authentication.k8s.io/v1/selfsubjectreviews":
		a.answer(w, http.StatusCreated, map[string]any{
			"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": map[string]any{"userInfo": map[string]any{"username": "ada"}},
		})
	case "PATCH " + path + "/linux":
		a.patch(w, r)
	default:
		a.answer(w, http.StatusNotFound, status(http.StatusNotFound, metav1.StatusReasonNotFound, nil))
	}
}

func (a *poolAPI) patch(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.patches, a.fieldOwner = append(a.patches, string(body)), r.URL.Query().Get("fieldManager")
	var patch struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		a.answer(w, http.StatusBadRequest, status(http.StatusBadRequest, metav1.StatusReasonBadRequest, nil))
		return
	}
	if a.before != nil {
		a.before(len(a.patches))
	}
	switch {
	case a.refuse != nil:
		a.answer(w, int(a.refuse.Code), a.refuse)
	case patch.Metadata.ResourceVersion != fmt.Sprint(a.version):
		a.answer(w, http.StatusConflict, status(http.StatusConflict, metav1.StatusReasonConflict, nil))
	default:
		a.answer(w, http.StatusOK, map[string]any{"apiVersion": "bullpen.dev/v1alpha1", "kind": "RunnerPool", "metadata": map[string]any{"name": "linux"}})
	}
}

func (a *poolAPI) answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func status(code int32, reason metav1.StatusReason, causes []metav1.StatusCause) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason),
		Details: &metav1.StatusDetails{Causes: causes},
	}
}

func newPoolAPI(t *testing.T) (*poolAPI, *rest.Config) {
	t.Helper()
	api := &poolAPI{t: t, version: 7, spec: map[string]any{"replicas": 3}}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	return api, &rest.Config{Host: server.URL}
}

func scaleTo(n int64) cli.PoolChange {
	return cli.PoolChange{Namespace: "runners", Pool: "linux", Settings: []poolchange.Setting{poolchange.Set("replicas", n)}}
}

// A write carries the version that was read, the user, and the name that owns the field.
func TestSetPool_WritesWhatIsDifferent(t *testing.T) {
	api, config := newPoolAPI(t)
	changed, err := cli.SetPool(t.Context(), config, scaleTo(5))
	require.NoError(t, err)
	require.True(t, changed.Changed)
	require.Empty(t, changed.Already())
	require.Equal(t, []string{`{"metadata":{"annotations":{"bullpen.dev/changed-by":"u 4 ada"},"resourceVersion":"7"},"spec":{"replicas":5}}`}, api.patches)
	require.Equal(t, "bullpen-pool", api.fieldOwner)
	require.Equal(t, [][]string{{"runners", "linux", "spec.replicas", "3", "5"}}, cli.PoolSettingsTable(changed).Rows)

	same, err := cli.SetPool(t.Context(), config, scaleTo(3))
	require.NoError(t, err)
	require.False(t, same.Changed)
	require.Equal(t, "pool linux already has spec.replicas 3", same.Already())
	require.Len(t, api.patches, 1, "nothing was written")

	api.spec["intake"] = "Drained"
	drained, err := cli.SetPool(t.Context(), config, scaleTo(4))
	require.NoError(t, err)
	require.Equal(t, []string{"pool linux is drained and keeps no idle runners until `bullpen pool resume linux`"}, drained.Warnings)
}

// The controller's writes of the status are no conflict; another client's change of the same field is.
func TestSetPool_ConcurrentChanges(t *testing.T) {
	api, config := newPoolAPI(t)
	api.before = func(attempt int) {
		if attempt == 1 {
			api.version++
		}
	}
	changed, err := cli.SetPool(t.Context(), config, scaleTo(5))
	require.NoError(t, err)
	require.True(t, changed.Changed)
	require.Len(t, api.patches, 2)

	api, config = newPoolAPI(t)
	api.before = func(int) { api.version, api.spec = api.version+1, map[string]any{"replicas": 9} }
	_, err = cli.SetPool(t.Context(), config, scaleTo(5))
	require.EqualError(t, err, "conflict: pool linux was changed at the same time. Check `bullpen pool get linux` and retry")
	require.Len(t, api.patches, 1, "the other change stands")

	api, config = newPoolAPI(t)
	api.before = func(int) { api.version++ }
	_, err = cli.SetPool(t.Context(), config, scaleTo(5))
	require.ErrorContains(t, err, "conflict: pool linux was changed at the same time")
}

// A field that another client applies is left alone, unless it is taken over.
func TestSetPool_AppliedFields(t *testing.T) {
	api, config := newPoolAPI(t)
	api.managed = []any{map[string]any{
		"manager": "argocd-controller", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:replicas": map[string]any{}}},
	}}
	_, err := cli.SetPool(t.Context(), config, scaleTo(5))
	require.EqualError(t, err, "conflict: spec.replicas of pool linux is managed by argocd-controller. Change it there, or overwrite with --force-conflicts")
	require.Empty(t, api.patches)
	_, err = cli.SetPool(t.Context(), config, scaleTo(3))
	require.NoError(t, err, "it has this value already")

	forced := scaleTo(5)
	forced.ForceConflicts = true
	changed, err := cli.SetPool(t.Context(), config, forced)
	require.NoError(t, err)
	require.Len(t, api.patches, 1)
	require.Equal(t, []string{"spec.replicas was managed by argocd-controller, which reverts this change if it writes the field again"}, changed.Warnings)
}

// The size of a pool is taken over from bullpen up, as from Helm; other fields of theirs are left alone.
func TestSetPool_SizesOfInstallers(t *testing.T) {
	api, config := newPoolAPI(t)
	managed := func(manager string) []any {
		return []any{map[string]any{"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{
			"f:spec": map[string]any{"f:replicas": map[string]any{}, "f:idleTimeout": map[string]any{}},
		}}}
	}
	api.managed = managed("bullpen-up")
	changed, err := cli.SetPool(t.Context(), config, scaleTo(5))
	require.NoError(t, err)
	require.Equal(t, []string{"`bullpen up` keeps this size when it starts again."}, changed.Notes)
	require.Empty(t, changed.Warnings)
	api.managed = managed("helm")
	changed, err = cli.SetPool(t.Context(), config, scaleTo(5))
	require.NoError(t, err)
	require.Equal(t, []string{"spec.replicas was managed by helm: put 5 into the release's values too, or the next helm upgrade reports a conflict"}, changed.Warnings)
	require.Empty(t, changed.Notes)
	require.Len(t, api.patches, 2)
	for _, manager := range []string{"bullpen-up", "helm"} {
		api.managed = managed(manager)
		idle := scaleTo(5)
		idle.Settings = append(idle.Settings, poolchange.Set("idle-timeout", "1h"))
		_, err = cli.SetPool(t.Context(), config, idle)
		require.EqualError(t, err, "conflict: spec.idleTimeout of pool linux is managed by "+manager+". Change it there, or overwrite with --force-conflicts")
	}
	require.Len(t, api.patches, 2, "nothing of such a change is written")
}

func TestSetPool_Refusals(t *testing.T) {
	api, config := newPoolAPI(t)
	missing := scaleTo(1)
	missing.Pool = "linx"
	_, err := cli.SetPool(t.Context(), config, missing)
	require.EqualError(t, err, `pool "linx" not found in namespace runners. Did you mean linux?`)

	api.refuse = status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, []metav1.StatusCause{
		{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.replicas", Message: "Invalid value: 20000: must be at most 10000"},
	})
	_, err = cli.SetPool(t.Context(), config, scaleTo(20000))
	require.EqualError(t, err, "changing pool linux: spec.replicas: Invalid value: 20000: must be at most 10000")

	api.refuse = status(http.StatusForbidden, metav1.StatusReasonForbidden, nil)
	_, err = cli.SetPool(t.Context(), config, scaleTo(4))
	require.ErrorContains(t, err, "changing pool linux: not allowed")

	api.spec = map[string]any{"autoscaling": map[string]any{"enabled": true, "maxReplicas": 4}}
	wrote := len(api.patches)
	_, err = cli.SetPool(t.Context(), config, scaleTo(4))
	var rejected *poolchange.RejectedError
	require.ErrorAs(t, err, &rejected)
	require.Len(t, api.patches, wrote)
}
