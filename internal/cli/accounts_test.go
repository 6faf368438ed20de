package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// The table names the limit that an account reaches first, and shows 100% only of one that is reached.
func TestAccounts_SayHowCloseTheyAreToALimit(t *testing.T) {
	limits := adminapi.Limits{Jobs: 40, MilliCPU: 32000, MemoryMB: 65536}
	for name, c := range map[string]struct {
		usage  adminapi.Usage
		limits adminapi.Limits
		says   string
	}{
		"nothing runs":                    {says: "0% jobs", limits: limits},
		"jobs":                            {says: "50% jobs", limits: limits, usage: adminapi.Usage{Jobs: 20, MilliCPU: 10000, MemoryMB: 1024}},
		"cpu":                             {says: "93% cpu", limits: limits, usage: adminapi.Usage{Jobs: 20, MilliCPU: 30000, MemoryMB: 1024}},
		"memory":                          {says: "75% memory", limits: limits, usage: adminapi.Usage{Jobs: 20, MilliCPU: 10000, MemoryMB: 49152}},
		"a thousandth of a CPU is left":   {says: "99% cpu", limits: limits, usage: adminapi.Usage{Jobs: 1, MilliCPU: 31999, MemoryMB: 1}},
		"reached":                         {says: "100% cpu", limits: limits, usage: adminapi.Usage{Jobs: 1, MilliCPU: 32000, MemoryMB: 1}},
		"lowered below what runs":         {says: "200% jobs", limits: adminapi.Limits{Jobs: 10, MilliCPU: 32000, MemoryMB: 65536}, usage: adminapi.Usage{Jobs: 20, MilliCPU: 20000, MemoryMB: 1024}},
		"nothing may run":                 {says: "100% jobs", limits: adminapi.Limits{}},
		"no memory, so nothing may run":   {says: "100% memory", limits: adminapi.Limits{Jobs: 10, MilliCPU: 32000}, usage: adminapi.Usage{}},
		"over by less than what was zero": {says: "150% cpu", limits: adminapi.Limits{Jobs: 10, MilliCPU: 2000}, usage: adminapi.Usage{MilliCPU: 3000}},
	} {
		t.Run(name, func(t *testing.T) {
			table := cli.AccountTable([]adminapi.Account{{Login: "acme", Budgets: []adminapi.Budget{{Platform: "linux", Limits: c.limits, Usage: c.usage}}}})
			require.Equal(t, "CLOSEST", table.Columns[6])
			require.Equal(t, c.says, table.Rows[0][6])
		})
	}
}

// A limit of 0 has a warning that says what it does.
func TestNothingRuns_NamesALimitOfZero(t *testing.T) {
	account := adminapi.Account{Login: "acme", Budgets: []adminapi.Budget{
		{Platform: "linux", Limits: adminapi.Limits{Jobs: 1, MilliCPU: 1, MemoryMB: 1}}, {Platform: "macos", Limits: adminapi.Limits{Jobs: 1, MilliCPU: 1}},
	}}
	require.Empty(t, cli.NothingRuns(account, "linux"))
	require.Contains(t, cli.NothingRuns(account, "macos"), "acme cannot start macOS jobs while its memory limit is 0")
}
