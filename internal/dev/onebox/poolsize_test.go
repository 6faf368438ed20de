package onebox

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sized is a pool with a spec, and the fields that managers have.
func sized(t *testing.T, spec string, managers map[string]string) *unstructured.Unstructured {
	t.Helper()
	object := map[string]any{"metadata": map[string]any{"name": "linux"}}
	var decoded map[string]any
	require.NoError(t, json.Unmarshal([]byte(spec), &decoded))
	object["spec"] = decoded
	pool := &unstructured.Unstructured{Object: object}
	var entries []any
	for manager, fields := range managers {
		var owned map[string]any
		require.NoError(t, json.Unmarshal([]byte(fields), &owned))
		entries = append(entries, map[string]any{"manager": manager, "fieldsV1": map[string]any{"f:spec": owned}})
	}
	if len(entries) > 0 {
		require.NoError(t, unstructured.SetNestedSlice(object, entries, "metadata", "managedFields"))
	}
	return pool
}

// A size that another client has set since stays; one that was not changed follows the file.
func TestKeepSize(t *testing.T) {
	for name, c := range map[string]struct {
		file, live string
		managers   map[string]string
		applied    string // spec
		says       string
	}{
		"unchanged": {
			file: `{"replicas":4}`, live: `{"replicas":4}`, managers: map[string]string{fieldManager: `{"f:replicas":{}}`}, applied: `{"replicas":4}`,
		},
		"the file changed": {
			file: `{"replicas":6}`, live: `{"replicas":4}`, managers: map[string]string{fieldManager: `{"f:replicas":{}}`}, applied: `{"replicas":6}`,
		},
		"scaled": {
			file: `{"replicas":4,"idleTimeout":"1h"}`, live: `{"replicas":5}`, managers: map[string]string{fieldManager: `{"f:idleTimeout":{}}`, "bullpen-pool": `{"f:replicas":{}}`},
			applied: `{"idleTimeout":"1h"}`, says: "spec.replicas 5 (not 4)",
		},
		"scaled by a client that the API server does not record": {
			file: `{"replicas":4}`, live: `{"replicas":5}`, applied: `{}`, says: "spec.replicas 5 (not 4)",
		},
		"scaled to what the file says": {
			file: `{"replicas":5}`, live: `{"replicas":5}`, managers: map[string]string{"bullpen-pool": `{"f:replicas":{}}`}, applied: `{"replicas":5}`,
		},
		"one of several fields": { // the maximum of the file is below the minimum that was set
			file: `{"autoscaling":{"enabled":true,"minIdle":1,"maxReplicas":3}}`, live: `{"autoscaling":{"enabled":true,"minIdle":9,"maxReplicas":10}}`,
			managers: map[string]string{fieldManager: `{"f:autoscaling":{"f:enabled":{},"f:maxReplicas":{}}}`, "bullpen-pool": `{"f:autoscaling":{"f:minIdle":{}}}`},
			applied:  `{"autoscaling":{"enabled":true,"maxReplicas":10}}`, says: "spec.autoscaling.minIdle 9 (not 1), spec.autoscaling.maxReplicas 10 (not 3)",
		},
		"autoscaling was turned off": {
			file: `{"autoscaling":{"enabled":true}}`, live: `{"replicas":2,"autoscaling":{"enabled":false}}`,
			managers: map[string]string{"bullpen-pool": `{"f:replicas":{},"f:autoscaling":{"f:enabled":{}}}`}, applied: `{}`, says: "spec.autoscaling.enabled false (not true)",
		},
	} {
		pool := sized(t, c.file, nil)
		before := pool.DeepCopy()
		applied, says, err := keepSize(pool, sized(t, c.live, c.managers))
		require.NoError(t, err, name)
		require.Equal(t, before, pool, "%s: what was read from the file stays", name)
		spec, err := json.Marshal(applied.Object["spec"])
		require.NoError(t, err)
		require.JSONEq(t, c.applied, string(spec), name)
		if c.says == "" {
			require.Empty(t, says, name)
		}
		require.Contains(t, says, c.says, name)
	}
}
