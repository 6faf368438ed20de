package poolaudit

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	return o
}

// The action says what changed, and both states have the changed fields only.
func TestCompare_SaysWhatChanged(t *testing.T) {
	for _, c := range []struct {
		earlier, now, action, before, after string
	}{
		{`{"intake":"Open","replicas":2}`, `{"intake":"Paused","replicas":2}`, adminapi.ActionPoolPause, `{"intake":"Open"}`, `{"intake":"Paused"}`},
		{`{"replicas":2}`, `{"intake":"Drained","replicas":2}`, adminapi.ActionPoolDrain, `{}`, `{"intake":"Drained"}`},
		{`{"intake":"Drained"}`, `{"intake":"Open"}`, adminapi.ActionPoolResume, `{"intake":"Drained"}`, `{"intake":"Open"}`},
		{`{"intake":"Paused"}`, `{}`, adminapi.ActionPoolResume, `{"intake":"Paused"}`, `{}`},
		{`{"intake":"Open","replicas":2}`, `{"intake":"Paused","replicas":3}`, adminapi.ActionPoolPause, `{"intake":"Open","replicas":2}`, `{"intake":"Paused","replicas":3}`},
		{`{"replicas":2}`, `{"replicas":5}`, adminapi.ActionPoolScale, `{"replicas":2}`, `{"replicas":5}`},
		{
			`{"autoscaling":{"minIdle":1,"maxReplicas":9}}`, `{"autoscaling":{"minIdle":1,"maxReplicas":20}}`, adminapi.ActionPoolScale,
			`{"autoscaling":{"maxReplicas":9}}`, `{"autoscaling":{"maxReplicas":20}}`,
		},
		{`{"replicas":2}`, `{"autoscaling":{"maxReplicas":20}}`, adminapi.ActionPoolScale, `{"replicas":2}`, `{"autoscaling":{"maxReplicas":20}}`},
		{`{"replicas":2,"labels":["a"]}`, `{"replicas":5,"labels":["a","b"]}`, adminapi.ActionPoolSet, `{"replicas":2,"labels":["a"]}`, `{"replicas":5,"labels":["a","b"]}`},
		{`{"template":"sha256:a"}`, `{"template":"sha256:b"}`, adminapi.ActionPoolSet, `{"template":"sha256:a"}`, `{"template":"sha256:b"}`},
	} {
		change, changed := Compare(object(t, c.earlier), Pool{Spec: object(t, c.now)})
		require.True(t, changed, c.now)
		require.Equal(t, c.action, change.Action, c.now)
		require.Equal(t, object(t, c.before), change.Before, c.now)
		require.Equal(t, object(t, c.after), change.After, c.now)
	}
	for _, same := range []string{`{}`, `{"intake":"Paused","autoscaling":{"maxReplicas":2},"labels":["a"]}`} {
		_, changed := Compare(object(t, same), Pool{Spec: object(t, same)})
		require.False(t, changed, "the deletion of a pool raises its generation, too")
	}
}

// The manager is the last one that owns a changed field, whatever others wrote later to other fields.
func TestCompare_NamesTheManager(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 20, 10, minute, 0, 0, time.UTC) }
	helm := Manager{Name: "helm", At: at(1), Spec: object(t, `{"f:replicas":{},"f:autoscaling":{"f:maxReplicas":{}},"f:labels":{}}`)}
	bullpen := Manager{Name: "bullpen-pool", At: at(2), Spec: object(t, `{"f:intake":{}}`)}
	edit := Manager{Name: "kubectl-edit", At: at(3), Spec: object(t, `{"f:autoscaling":{"f:minIdle":{}}}`)}
	later := Manager{Name: "other", At: at(4), Spec: object(t, `{"f:scope":{}}`)}
	for _, c := range []struct {
		earlier, now string
		want         Manager
	}{
		{`{"intake":"Open"}`, `{"intake":"Paused"}`, bullpen},
		{`{"replicas":1}`, `{"replicas":2}`, helm},
		{`{"autoscaling":{"maxReplicas":1}}`, `{"autoscaling":{"maxReplicas":2}}`, helm},
		{`{"autoscaling":{"minIdle":1,"maxReplicas":1}}`, `{"autoscaling":{"minIdle":2,"maxReplicas":1}}`, edit},
		{`{"labels":["a"]}`, `{"labels":["b"]}`, helm},
		{`{"queueing":"FIFO"}`, `{}`, Manager{}}, // a removed field has no manager
		{`{}`, `{"idleTimeout":"1h"}`, Manager{}},
	} {
		change, changed := Compare(object(t, c.earlier), Pool{Spec: object(t, c.now), Managers: []Manager{later, edit, helm, bullpen, {Name: "status", At: at(5)}}})
		require.True(t, changed)
		require.Equal(t, c.want.Name, change.Manager, c.now)
		require.Equal(t, c.want.At, change.At, c.now)
	}
	change, _ := Compare(object(t, `{"replicas":1}`), Pool{Spec: object(t, `{"replicas":2}`)})
	require.Empty(t, change.Manager)
	require.True(t, change.At.IsZero())
}

// A reason is that of the same change only.
func TestCompare_ReasonOfThisChange(t *testing.T) {
	const note = "by system:serviceaccount:a:b since 2026-11-20 10:00 UTC: disks: full"
	for _, c := range []struct{ now, note, author, want string }{
		{`{"intake":"Paused"}`, note, "system:serviceaccount:a:b", "disks: full"},
		{`{"intake":"Paused"}`, note, "", ""},
		{`{"intake":"Paused"}`, note, "ada", ""},
		{`{"intake":"Paused"}`, "by ada since 2026-11-20 10:00 UTC", "ada", ""},
		{`{"intake":"Drained"}`, "by ada since 2026-11-20 10:00 UTC: old", "ada", "old"},
		{`{"intake":"Open","replicas":2}`, note, "system:serviceaccount:a:b", ""},
	} {
		change, changed := Compare(object(t, `{"intake":"Open"}`), Pool{Spec: object(t, c.now), Note: c.note, Author: c.author})
		require.True(t, changed)
		require.Equal(t, c.want, change.Reason, c.now)
	}
}
