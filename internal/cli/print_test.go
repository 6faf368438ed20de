package cli_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

// screen is an output that shows colours.
type screen struct{ bytes.Buffer }

func (*screen) Coloured() bool { return true }

var uncoloured = strings.NewReplacer("\x1b[31m", "", "\x1b[32m", "", "\x1b[33m", "", "\x1b[90m", "", "\x1b[0m", "")

// Columns are as wide as what is seen of their cells: characters of two columns count as two.
func TestPrint_AlignsColumns(t *testing.T) {
	table := cli.Table{Columns: []string{"A", "B"}, Rows: [][]string{{"日本", "x"}, {"abc", "y"}, {"é", "z"}}}
	var out bytes.Buffer
	require.NoError(t, cli.Print(&out, cli.FormatTable, nil, table))
	require.Equal(t, "A      B\n日本   x\nabc    y\né      z\n", out.String())
}

// NO_COLOR turns colours off, and a file has none.
func TestColoured(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	defer file.Close()
	require.False(t, cli.Coloured(file))
	require.False(t, cli.Coloured(&bytes.Buffer{}))
	require.True(t, cli.Coloured(&screen{}))
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal can be made here: %v", err)
	}
	defer terminal.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	require.True(t, cli.Coloured(terminal))
	t.Setenv("NO_COLOR", "1")
	require.False(t, cli.Coloured(terminal))
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	require.False(t, cli.Coloured(terminal))
}
