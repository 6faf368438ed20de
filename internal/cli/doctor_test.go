package cli_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/doctor"
)

// The last line of a report says what was checked, how many problems there are, and how many checks could not run.
func TestPrintReport_EndsWithASummary(t *testing.T) {
	found := doctor.Finding{Code: "no-pool", Severity: doctor.SeverityError, Sentence: "No pool.", Remedy: "Apply one."}
	unchecked := doctor.Unchecked{What: "the ledger", Why: "connection refused.", Remedy: "Use --database-url-file."}
	for want, report := range map[string]doctor.Report{
		"Checked GitHub, the ledger and the cluster: no problems found.\n":          {Checked: []string{"GitHub", "the ledger", "the cluster"}},
		"Checked GitHub and the cluster: 1 problem found, 1 check could not run.\n": {Checked: []string{"GitHub", "the cluster"}, Findings: []doctor.Finding{found}, Unchecked: []doctor.Unchecked{unchecked}},
		"Checked GitHub: 2 problems found.\n":                                       {Checked: []string{"GitHub"}, Findings: []doctor.Finding{found, found}},
		"Checked nothing: no problems found, 2 checks could not run.\n":             {Unchecked: []doctor.Unchecked{unchecked, unchecked}},
	} {
		var out bytes.Buffer
		require.NoError(t, cli.PrintReport(&out, cli.FormatTable, report))
		require.Regexp(t, `(^|\n)`+want+`$`, out.String())
		require.NotContains(t, out.String(), "\x1b")
		if len(report.Findings) > 0 {
			require.Contains(t, out.String(), "error    No pool. (no-pool)\n         Apply one.\n")
		}
		if len(report.Unchecked) > 0 {
			require.Contains(t, out.String(), "unknown  Could not check the ledger: connection refused.\n         Use --database-url-file.\n")
		}
	}
	var out screen
	require.NoError(t, cli.PrintReport(&out, cli.FormatTable, doctor.Report{Findings: []doctor.Finding{found}}))
	require.Contains(t, out.String(), string(cli.Red)+"error    \x1b[0mNo pool.")
}
