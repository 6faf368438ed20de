package console

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// The audit log shows what a change made different, and nothing else; unexpected content does not break the page.
func TestDifferences_AreWhatChanged(t *testing.T) {
	for _, c := range []struct {
		before, after string
		want          []difference
	}{
		{`{"linux":{"jobs":40,"milliCpu":32000}}`, `{"linux":{"jobs":1,"milliCpu":32000}}`, []difference{{"linux jobs", "40", "1"}}},
		{`{"linux":{"milliCpu":32000,"memoryMb":65536}}`, `{"linux":{"milliCpu":500,"memoryMb":512,"jobsPerRepository":2}}`,
			[]difference{{"linux jobs per repository", "", "2"}, {"linux memory", "64Gi", "512Mi"}, {"linux CPUs", "32", "500m"}}},
		{`{"milliCpu":"many"}`, `{"milliCpu":null}`, []difference{{"CPUs", "many", ""}}},
		{`{"suspendedByAdministrator":false}`, `{"suspendedByAdministrator":true,"suspensionReason":"unpaid"}`,
			[]difference{{"suspendedByAdministrator", "false", "true"}, {"suspensionReason", "", "unpaid"}}},
		{``, `{"login":"acme","id":9007199254740993}`, []difference{{"id", "", "9007199254740993"}, {"login", "", "acme"}}},
		{`{"a":[1,2]}`, `{"a":null}`, []difference{{"a", "[1,2]", ""}}},
		{`{"a":1}`, `{"a":1}`, nil},
		{`null`, `not JSON`, nil},
	} {
		require.Equal(t, c.want, differences(json.RawMessage(c.before), json.RawMessage(c.after)), c.after)
	}
}
