package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// A pool that already is in the requested state is reported so, with the change that set it.
func TestPoolIntake_Already(t *testing.T) {
	for want, p := range map[string]cli.PoolIntake{
		"": {Name: "linux", Intake: v1alpha1.IntakePaused, Changed: true},
		"pool linux is already paused (by ada since 2026-03-01 12:00 UTC: disks)": {Name: "linux", Intake: v1alpha1.IntakePaused, Note: "by ada since 2026-03-01 12:00 UTC: disks"},
		"pool mac is already drained":        {Name: "mac", Intake: v1alpha1.IntakeDrained},
		"pool big is already accepting jobs": {Name: "big", Intake: v1alpha1.IntakeOpen, Note: "left over"},
	} {
		require.Equal(t, want, p.Already())
	}
}

// poolCluster has one pool, whose resource version changes before the first patch arrives.
type poolCluster struct {
	t       *testing.T
	user    string // empty: the cluster does not say
	always  bool   // every patch is a conflict
	version int
	patches []map[string]any
}

func (c *poolCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	pool := map[string]any{
		"apiVersion": "bullpen.dev/v1alpha1", "kind": "RunnerPool", "spec": map[string]any{"intake": "Open"},
		"metadata": map[string]any{"name": "linux", "namespace": "runners", "uid": "u-1", "generation": 4 + c.version, "resourceVersion": string(rune('a' + c.version))},
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		if c.user == "" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": map[string]any{"userInfo": map[string]any{"username": c.user}},
		})
	case r.Method == http.MethodPatch:
		var patch map[string]any
		if json.NewDecoder(r.Body).Decode(&patch) != nil {
			c.t.Error("a patch is not JSON")
		}
		c.patches = append(c.patches, patch)
		if len(c.patches) == 1 || c.always {
			c.version++
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`))
			return
		}
		_ = json.NewEncoder(w).Encode(pool)
	default:
		_ = json.NewEncoder(w).Encode(pool)
	}
}

func (c *poolCluster) pause() (cli.PoolIntake, error) {
	server := httptest.NewServer(c)
	defer server.Close()
	return cli.SetIntake(c.t.Context(), &rest.Config{Host: server.URL}, cli.IntakeChange{
		Namespace: "runners", Pool: "linux", Intake: v1alpha1.IntakePaused, Reason: "disks", At: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
	})
}

// A change names its user for the generation that it makes, based on the pool as it was read, and is repeated after a conflict.
func TestSetIntake_NamesTheUserOfThisGeneration(t *testing.T) {
	cluster := &poolCluster{t: t, user: "ada"}
	changed, err := cluster.pause()
	require.NoError(t, err)
	require.True(t, changed.Changed)
	require.Len(t, cluster.patches, 2)
	require.Equal(t, map[string]any{
		"metadata": map[string]any{"resourceVersion": "b", "annotations": map[string]any{
			"bullpen.dev/intake-note": "by ada since 2026-11-20 10:00 UTC: disks", "bullpen.dev/changed-by": "u-1 6 ada",
		}},
		"spec": map[string]any{"intake": "Paused"},
	}, cluster.patches[1])

	unknown := &poolCluster{t: t}
	_, err = unknown.pause()
	require.NoError(t, err)
	metadata, ok := unknown.patches[1]["metadata"].(map[string]any)
	require.True(t, ok)
	require.Equal(t, map[string]any{"bullpen.dev/intake-note": "since 2026-11-20 10:00 UTC: disks", "bullpen.dev/changed-by": nil}, metadata["annotations"],
		"the name of an earlier change is removed")

	_, err = (&poolCluster{t: t, user: "ada", always: true}).pause()
	require.EqualError(t, err, "conflict: pool linux was changed at the same time. Check `bullpen pools` and retry")
}
