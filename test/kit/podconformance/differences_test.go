package podconformance

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The guide shows the list, so that readers and the suite have one.
func TestDifferences_AreThoseOfTheGuide(t *testing.T) {
	table, err := Table(NodeAgent)
	require.NoError(t, err)
	guide, err := os.ReadFile("../../../docs/guides/nodes.md")
	require.NoError(t, err)
	require.Contains(t, string(guide), "\n## Differences from the kubelet\n")
	require.Contains(t, string(guide), "\n\n"+table+"\n", "docs/guides/nodes.md needs this table:\n%s", table)
}

func TestDifferences_NameRowsAndSayWhy(t *testing.T) {
	for want, list := range map[string][]Difference{
		`"No/SuchRow" names no row`:                    {{Row: "No/SuchRow", Here: "x", Why: "y"}},
		`"Exit/Error" is listed twice`:                 {{Row: "Exit/Error", Here: "x", Why: "y"}, {Row: "Exit/Error", Here: "x", Why: "y"}},
		`"Exit/Error" does not say what the node does`: {{Row: "Exit/Error", Here: "x"}},
	} {
		_, err := byRow(rows(), list)
		require.ErrorContains(t, err, want)
	}
	_, err := byRow(append(rows(), row{name: "Exit/Error"}), nil)
	require.ErrorContains(t, err, "two rows are named Exit/Error")
}

func TestVerdict_FailsNewDifferencesAndThoseThatAreOver(t *testing.T) {
	r := row{name: "Exit/Error", fact: "another code is `Error`"}
	known := map[string]Difference{r.name: {Row: r.name, Here: "it is not", Why: "why not"}}
	for _, test := range []struct {
		known   map[string]Difference
		problem string
		ok      bool
		says    string
	}{
		{nil, "", true, ""},
		{nil, "got 4", false, "got 4"},
		{known, "got 4", true, "here: it is not (why not)"},
		{known, "", false, "remove the row from its differences"},
	} {
		text, ok := verdict(r, test.known, test.problem)
		require.Equal(t, test.ok, ok, text)
		require.Contains(t, text, test.says)
	}
}
