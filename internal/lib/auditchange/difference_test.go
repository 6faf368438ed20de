package auditchange_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/auditchange"
)

// The audit log shows what a change made different, and nothing else; unexpected content does not break the page.
func TestOf_IsWhatChanged(t *testing.T) {
	for _, c := range []struct {
		before, after string
		want          []auditchange.Difference
	}{
		{`{"linux":{"jobs":40,"milliCpu":32000}}`, `{"linux":{"jobs":1,"milliCpu":32000}}`, []auditchange.Difference{{"linux jobs", "40", "1"}}},
		{`{"linux":{"milliCpu":32000,"memoryMb":65536}}`, `{"linux":{"milliCpu":500,"memoryMb":512,"jobsPerRepository":2}}`,
			[]auditchange.Difference{{"linux jobs per repository", "", "2"}, {"linux memory", "64Gi", "512Mi"}, {"linux CPUs", "32", "500m"}}},
		{`{"milliCpu":"many"}`, `{"milliCpu":null}`, []auditchange.Difference{{"CPUs", "many", ""}}},
		{`{"suspendedByAdministrator":false}`, `{"suspendedByAdministrator":true,"suspensionReason":"unpaid"}`,
			[]auditchange.Difference{{"suspended by an administrator", "false", "true"}, {"suspension reason", "", "unpaid"}}},
		{``, `{"login":"acme","id":9007199254740993}`, []auditchange.Difference{{"id", "", "9007199254740993"}, {"login", "", "acme"}}},
		{`{"a":[1,2]}`, `{"a":null}`, []auditchange.Difference{{"a", "[1,2]", ""}}},
		{`{"a":1}`, `{"a":1}`, nil},
		{`null`, `not JSON`, nil},
	} {
		require.Equal(t, c.want, auditchange.Of(json.RawMessage(c.before), json.RawMessage(c.after)), c.after)
	}
}

func TestText_IsOneLine(t *testing.T) {
	text := func(before, after string) string {
		return auditchange.Text(auditchange.Of(json.RawMessage(before), json.RawMessage(after)))
	}
	require.Equal(t, "linux jobs: 20 → 40; linux CPUs: 16 → 32",
		text(`{"linux":{"milliCpu":16000,"jobs":20,"memoryMb":1}}`, `{"linux":{"milliCpu":32000,"jobs":40,"memoryMb":1}}`), "fields that stay are not named")
	require.Equal(t, "replicas: 3", text(`{}`, `{"replicas":3}`))
	require.Equal(t, "autoscaling maxReplicas: 9 → none", text(`{"autoscaling":{"maxReplicas":9}}`, `{}`))
	require.Empty(t, text(`{"replicas":3}`, `{"replicas":3}`))
}
