package main

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/reference"
)

var (
	manFolder  = flag.String("man", "", "directory for the man pages, as make man does; they go to a temporary one without it")
	manVersion = flag.String("man-version", "dev", "version that the man pages name")
)

// TestMan_HasAPageForEachCommand also writes the man pages of `make man`.
func TestMan_HasAPageForEachCommand(t *testing.T) {
	for _, variable := range reference.Variables() {
		t.Setenv(variable.Name, "")
	}
	if *manFolder == "" {
		t.Setenv("SOURCE_DATE_EPOCH", "0")
	}
	folder := cmp.Or(*manFolder, t.TempDir())
	root := newRootCommand()
	root.InitDefaultCompletionCmd()
	require.NoError(t, reference.Man(root, folder, *manVersion))
	pages := 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd != root {
			return
		}
		file := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		text, err := os.ReadFile(filepath.Join(folder, file))
		require.NoError(t, err)
		pages++
		require.Contains(t, string(text), "Bullpen "+*manVersion, file)
		require.NotContains(t, string(text), "cobra", file)
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(root)
	require.Greater(t, pages, 50)
	jobs, err := os.ReadFile(filepath.Join(folder, "bullpen-jobs.1"))
	require.NoError(t, err)
	require.Contains(t, string(jobs), `.TH "BULLPEN-JOBS" "1"`)
	require.Contains(t, string(jobs), `\fB--conclusion\fP`)
}
