package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/docs"
	"github.com/bullpen-ci/bullpen/test/kit/reference"
)

var updateReference = flag.Bool("update", false, "write the page of docs/reference that comes from the program, as make generate does")

const referenceFolder = "../../docs/reference/cli"

// The program's page is what the program has, and the index of all commands leads to it with the program's own words.
func TestReference_CLI(t *testing.T) {
	name, page := reference.OwnPage(newRootCommand())
	file := filepath.Join(referenceFolder, name)
	if *updateReference {
		require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err, "run make generate")
	require.Equal(t, string(text), page, "%s: run make generate", name)
	index, err := os.ReadFile(filepath.Join(referenceFolder, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(index), "| ["+newRootCommand().Name()+"]("+name+") | "+newRootCommand().Short+" |", "change test/kit/reference, and run make generate")
}

// Every bullpen-migrate command of every page exists, takes the flags that the page gives it, and as many arguments.
func TestDocs_NameCommandsThatExist(t *testing.T) {
	pages, err := docs.Pages("../..")
	require.NoError(t, err)
	checked := 0
	for name, text := range pages {
		for _, block := range docs.Blocks(name, text) {
			for _, command := range docs.Commands(block) {
				for _, words := range command.Parts() {
					if filepath.Base(words[0]) != "bullpen-migrate" {
						continue
					}
					checked++
					cmd, rest, err := newRootCommand().Find(words[1:])
					require.NoError(t, err, "%s: %s", command.At(), command.Shell)
					require.NoError(t, cmd.ParseFlags(rest), "%s: %s", command.At(), command.Shell)
					require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%s: %s", command.At(), command.Shell)
				}
			}
		}
	}
	require.GreaterOrEqual(t, checked, 4)
}
