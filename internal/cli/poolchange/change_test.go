package poolchange_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli/poolchange"
)

const (
	fixed      = `{"replicas": 3, "queueing": "FIFO"}`
	autoscaled = `{"replicas": 1, "idleTimeout": "12h", "autoscaling": {"enabled": true, "minIdle": 2, "maxReplicas": 10, "stabilization": "3m"}}`
	switched   = `{"replicas": 4, "autoscaling": {"enabled": false, "minIdle": 2}}`
)

// pool has a spec, and managers with the fields that each has.
func pool(t *testing.T, spec string, managers ...string) *unstructured.Unstructured {
	t.Helper()
	text := `{"apiVersion": "bullpen.dev/v1alpha1", "kind": "RunnerPool", "metadata": {"name": "linux", "resourceVersion": "77", "managedFields": [` +
		strings.Join(managers, ",") + `]}, "spec": ` + spec + `}`
	var object unstructured.Unstructured
	require.NoError(t, json.Unmarshal([]byte(text), &object), text)
	return &object
}

func manager(name, operation, subresource, fields string) string {
	return `{"manager": "` + name + `", "operation": "` + operation + `", "subresource": "` + subresource + `", "fieldsType": "FieldsV1", "fieldsV1": ` + fields + `}`
}

func set(flag string, value any) poolchange.Setting { return poolchange.Set(flag, value) }

// Every flag names a field of the API.
func TestFields_Exist(t *testing.T) {
	for _, field := range poolchange.Fields() {
		object := map[string]any{}
		require.NoError(t, unstructured.SetNestedField(object, nil, field.Path...)) // fits any type
		decoder := json.NewDecoder(bytes.NewReader(must(t, object)))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&v1alpha1.RunnerPool{}), field.Flag)
	}
}

func must(t *testing.T, v any) []byte {
	t.Helper()
	encoded, err := json.Marshal(v)
	require.NoError(t, err)
	return encoded
}

// A patch has the fields that are different, and the version that was read.
func TestDecide_PatchesWhatIsDifferent(t *testing.T) {
	for _, c := range []struct {
		spec     string
		settings []poolchange.Setting
		patch    string
	}{
		{fixed, []poolchange.Setting{set("replicas", int64(5))}, `{"metadata":{"resourceVersion":"77"},"spec":{"replicas":5}}`},
		{fixed, []poolchange.Setting{set("replicas", int64(3))}, `null`},
		{fixed, []poolchange.Setting{set("replicas", int64(0)), set("queueing", "FIFO")}, `{"metadata":{"resourceVersion":"77"},"spec":{"replicas":0}}`},
		{autoscaled, []poolchange.Setting{set("min-idle", int64(0)), set("max-replicas", int64(10))}, `{"metadata":{"resourceVersion":"77"},"spec":{"autoscaling":{"minIdle":0}}}`},
		{autoscaled, []poolchange.Setting{set("stabilization", "3m0s"), set("idle-timeout", "720m")}, `null`},
		{autoscaled, []poolchange.Setting{set("stabilization", "4m"), set("image", "runner:2")}, `{"metadata":{"resourceVersion":"77"},"spec":{"autoscaling":{"stabilization":"4m"},"template":{"image":"runner:2"}}}`},
		{fixed, []poolchange.Setting{set("autoscaling", true), set("max-replicas", int64(9))}, `{"metadata":{"resourceVersion":"77"},"spec":{"autoscaling":{"enabled":true,"maxReplicas":9}}}`},
		{autoscaled, []poolchange.Setting{set("autoscaling", false), set("replicas", int64(1))}, `{"metadata":{"resourceVersion":"77"},"spec":{"autoscaling":{"enabled":false}}}`},
		{switched, []poolchange.Setting{set("autoscaling", false)}, `null`},
	} {
		before := pool(t, c.spec)
		kept := before.DeepCopy()
		change, err := poolchange.Decide(before, c.settings)
		require.NoError(t, err, c.settings)
		require.JSONEq(t, c.patch, string(must(t, change.Patch)), "%v", c.settings)
		require.Equal(t, kept, before, "deciding changes nothing")
	}
	change, err := poolchange.Decide(pool(t, autoscaled), []poolchange.Setting{set("min-idle", int64(5)), set("scale-down-cooldown", "1m"), set("max-replicas", int64(10))})
	require.NoError(t, err)
	require.Equal(t, []poolchange.Changed{
		{Field: "spec.autoscaling.minIdle", Was: int64(2), Value: int64(5)},
		{Field: "spec.autoscaling.scaleDownCooldown", Value: "1m"},
		{Field: "spec.autoscaling.maxReplicas", Was: int64(10), Value: int64(10)},
	}, change.Fields)
}

// What would have no effect is rejected with the fields to set.
func TestDecide_Rejects(t *testing.T) {
	for _, c := range []struct {
		spec     string
		settings []poolchange.Setting
		says     string
	}{
		{
			autoscaled, []poolchange.Setting{set("replicas", int64(5))},
			"pool linux is autoscaled (minIdle 2, maxReplicas 10): replicas has no effect. Use `bullpen pool set linux --min-idle N --max-replicas N`, " +
				"or turn autoscaling off with `bullpen pool set linux --autoscaling=false --replicas N`",
		},
		{autoscaled, []poolchange.Setting{set("replicas", int64(1))}, "replicas has no effect"}, // also if it is that number already
		{
			fixed, []poolchange.Setting{set("min-idle", int64(5))},
			"pool linux is not autoscaled: --min-idle has no effect. Use `bullpen pool scale linux --replicas N`, " +
				"or turn autoscaling on with `bullpen pool set linux --autoscaling --max-replicas N`",
		},
		{switched, []poolchange.Setting{set("max-replicas", int64(5))}, "not autoscaled: --max-replicas has no effect"},
		{autoscaled, []poolchange.Setting{set("autoscaling", false), set("replicas", int64(1)), set("stabilization", "1m")}, "not autoscaled: --stabilization has no effect"},
		{fixed, []poolchange.Setting{set("autoscaling", true)}, "autoscaling needs a maximum: add --max-replicas N"},
		{fixed, []poolchange.Setting{set("autoscaling", true), set("max-replicas", int64(5)), set("replicas", int64(2))}, "is autoscaled (maxReplicas 5): replicas has no effect"},
		{autoscaled, []poolchange.Setting{set("min-idle", int64(11))}, "minIdle would be 11 and maxReplicas 10: raise --max-replicas, or lower --min-idle"},
		{autoscaled, []poolchange.Setting{set("max-replicas", int64(1))}, "minIdle would be 2 and maxReplicas 1"},
		{autoscaled, []poolchange.Setting{set("autoscaling", false)}, "without autoscaling spec.replicas (1) applies at once, and idle runners beyond it are removed: add --replicas N"},
	} {
		_, err := poolchange.Decide(pool(t, c.spec), c.settings)
		var rejected *poolchange.RejectedError
		require.ErrorAs(t, err, &rejected, c.says)
		require.ErrorContains(t, err, c.says)
	}
}

// A field that another manager applies is a conflict; one that it has written may be reverted. Other fields are neither.
func TestDecide_OtherManagers(t *testing.T) {
	both := []poolchange.Setting{set("min-idle", int64(3)), set("max-replicas", int64(20))}
	for _, c := range []struct {
		name     string
		managers []string
		conflict string
		warnings []string
	}{
		{name: "none"},
		{name: "these commands", managers: []string{manager("bullpen-pool", "Update", "", `{"f:spec":{"f:autoscaling":{"f:minIdle":{},"f:maxReplicas":{}}}}`)}},
		{name: "the status", managers: []string{manager("bullpen", "Update", "status", `{"f:spec":{"f:autoscaling":{"f:minIdle":{}}}}`)}},
		{name: "another field", managers: []string{manager("argocd-controller", "Apply", "", `{"f:spec":{"f:replicas":{},"f:autoscaling":{".":{},"f:enabled":{}}}}`)}},
		{
			name: "an applier", managers: []string{manager("argocd-controller", "Apply", "", `{"f:spec":{"f:autoscaling":{".":{},"f:minIdle":{},"f:maxReplicas":{}}}}`)},
			conflict: "conflict: spec.autoscaling.minIdle, spec.autoscaling.maxReplicas of pool linux are managed by argocd-controller. Change them there, or overwrite with --force-conflicts",
			warnings: []string{
				"spec.autoscaling.minIdle was managed by argocd-controller, which reverts this change if it writes the field again",
				"spec.autoscaling.maxReplicas was managed by argocd-controller, which reverts this change if it writes the field again",
			},
		},
		{
			name: "one that wrote it", managers: []string{manager("helm", "Update", "", `{"f:spec":{"f:autoscaling":{"f:maxReplicas":{}}}}`)},
			warnings: []string{"spec.autoscaling.maxReplicas was managed by helm, which reverts this change if it writes the field again"},
		},
		{
			name: "an atomic object", managers: []string{manager("flux", "Apply", "", `{"f:spec":{"f:autoscaling":{}}}`)},
			conflict: "managed by flux",
			warnings: []string{
				"spec.autoscaling.minIdle was managed by flux, which reverts this change if it writes the field again",
				"spec.autoscaling.maxReplicas was managed by flux, which reverts this change if it writes the field again",
			},
		},
	} {
		change, err := poolchange.Decide(pool(t, autoscaled, c.managers...), both)
		require.NoError(t, err, c.name)
		require.Equal(t, c.warnings, change.Warnings(), c.name)
		if c.conflict == "" {
			require.NoError(t, change.Conflicts("linux"), c.name)
			continue
		}
		var conflict *poolchange.ConflictError
		require.ErrorAs(t, change.Conflicts("linux"), &conflict, c.name)
		require.ErrorContains(t, conflict, c.conflict, c.name)
	}
	applied := manager("argocd-controller", "Apply", "", `{"f:spec":{"f:autoscaling":{"f:minIdle":{}}}}`)
	change, err := poolchange.Decide(pool(t, autoscaled, applied), []poolchange.Setting{set("min-idle", int64(2))})
	require.NoError(t, err)
	require.NoError(t, change.Conflicts("linux"), "the value is the same")
	require.Empty(t, change.Warnings())
}

// Between two attempts the pool may change; if it is one of the fields, nothing is written.
func TestChange_StillFrom(t *testing.T) {
	settings := []poolchange.Setting{set("min-idle", int64(3))}
	first, err := poolchange.Decide(pool(t, autoscaled), settings)
	require.NoError(t, err)
	same, err := poolchange.Decide(pool(t, strings.Replace(autoscaled, `"replicas": 1`, `"replicas": 2`, 1)), settings)
	require.NoError(t, err)
	require.NoError(t, same.StillFrom(first))
	other, err := poolchange.Decide(pool(t, strings.Replace(autoscaled, `"minIdle": 2`, `"minIdle": 4`, 1)), settings)
	require.NoError(t, err)
	require.ErrorIs(t, other.StillFrom(first), poolchange.ErrChanged)
}

func TestDuration(t *testing.T) {
	var got []string
	for _, d := range []time.Duration{0, time.Second, 90 * time.Second, 5 * time.Minute, 12 * time.Hour, 90 * time.Minute, time.Hour + time.Second, 1500 * time.Millisecond, 10 * time.Minute} {
		got = append(got, poolchange.Duration(d))
	}
	require.Equal(t, []string{"0s", "1s", "1m30s", "5m", "12h", "1h30m", "1h0m1s", "1.5s", "10m"}, got)
}
