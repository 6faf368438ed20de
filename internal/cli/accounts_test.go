package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/operatorapi"
)

// Which limit an account comes to first is said, and 100% only of one that is reached.
func TestAccounts_SayHowCloseTheyAreToALimit(t *testing.T) {
	limits := operatorapi.Limits{Jobs: 40, MilliCPU: 32000, MemoryMB: 65536}
	for name, c := range map[string]struct {
		usage  operatorapi.Usage
		limits operatorapi.Limits
		says   string
	}{
		"nothing runs":                    {says: "0% jobs", limits: limits},
		"jobs":                            {says: "50% jobs", limits: limits, usage: operatorapi.Usage{Jobs: 20, MilliCPU: 10000, MemoryMB: 1024}},
		"cpu":                             {says: "93% cpu", limits: limits, usage: operatorapi.Usage{Jobs: 20, MilliCPU: 30000, MemoryMB: 1024}},
		"memory":                          {says: "75% memory", limits: limits, usage: operatorapi.Usage{Jobs: 20, MilliCPU: 10000, MemoryMB: 49152}},
		"a thousandth of a CPU is left":   {says: "99% cpu", limits: limits, usage: operatorapi.Usage{Jobs: 1, MilliCPU: 31999, MemoryMB: 1}},
		"reached":                         {says: "100% cpu", limits: limits, usage: operatorapi.Usage{Jobs: 1, MilliCPU: 32000, MemoryMB: 1}},
		"lowered below what runs":         {says: "200% jobs", limits: operatorapi.Limits{Jobs: 10, MilliCPU: 32000, MemoryMB: 65536}, usage: operatorapi.Usage{Jobs: 20, MilliCPU: 20000, MemoryMB: 1024}},
		"nothing may run":                 {says: "100% jobs", limits: operatorapi.Limits{}},
		"no memory, so nothing may run":   {says: "100% memory", limits: operatorapi.Limits{Jobs: 10, MilliCPU: 32000}, usage: operatorapi.Usage{}},
		"over by less than what was zero": {says: "150% cpu", limits: operatorapi.Limits{Jobs: 10, MilliCPU: 2000}, usage: operatorapi.Usage{MilliCPU: 3000}},
	} {
		t.Run(name, func(t *testing.T) {
			table := cli.AccountTable([]operatorapi.Account{{Login: "acme", Budgets: []operatorapi.Budget{{Platform: "linux", Limits: c.limits, Usage: c.usage}}}})
			require.Equal(t, "CLOSEST", table.Columns[6])
			require.Equal(t, c.says, table.Rows[0][6])
		})
	}
}

// Whoever sets a limit to 0 is told what that does.
func TestNothingRuns_NamesALimitOfZero(t *testing.T) {
	account := operatorapi.Account{Login: "acme", Budgets: []operatorapi.Budget{
		{Platform: "linux", Limits: operatorapi.Limits{Jobs: 1, MilliCPU: 1, MemoryMB: 1}}, {Platform: "macos", Limits: operatorapi.Limits{Jobs: 1, MilliCPU: 1}},
	}}
	require.Empty(t, cli.NothingRuns(account, "linux"))
	require.Contains(t, cli.NothingRuns(account, "macos"), "nothing of acme starts on macos while its limit of memory is 0")
}
