package main

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/reference"
)

var (
	manFolder  = flag.String("man", "", "directory for the man pages, as make man does; they go to a temporary one without it")
	manVersion = flag.String("man-version", "dev", "version that the man pages name")
)

// TestMan_HasAPageForEachCommand also writes the man pages of `make man`.
func TestMan_HasAPageForEachCommand(t *testing.T) {
	if *manFolder == "" {
		t.Setenv("SOURCE_DATE_EPOCH", "0")
	}
	folder := cmp.Or(*manFolder, t.TempDir())
	require.NoError(t, reference.Man(newRootCommand(), folder, *manVersion))
	text, err := os.ReadFile(filepath.Join(folder, "bullpen-migrate-arc.1"))
	require.NoError(t, err)
	require.Contains(t, string(text), `.TH "BULLPEN-MIGRATE-ARC" "1"`)
	require.FileExists(t, filepath.Join(folder, "bullpen-migrate.1"))
}
