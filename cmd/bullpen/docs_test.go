package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/docs"
)

// Every bullpen command of every page exists, takes the flags that the page gives it, and as many arguments.
func TestDocs_NameCommandsThatExist(t *testing.T) {
	pages, err := docs.Pages("../..")
	require.NoError(t, err)
	looked := 0
	for name, text := range pages {
		if strings.HasPrefix(name, "docs/adr/") {
			continue
		}
		for _, block := range docs.Blocks(name, text) {
			for _, command := range docs.Commands(block) {
				for _, words := range command.Parts() {
					if words = ourWords(words); words != nil {
						looked++
						understands(t, command, words)
					}
				}
			}
		}
	}
	require.Greater(t, looked, 100)
}

// ourWords are what stands behind bullpen in a command; nil: it starts something else.
func ourWords(words []string) []string {
	if at := slices.Index(words, "--"); at >= 0 && words[0] == "kubectl" {
		words = words[at+1:]
	}
	if len(words) > 0 && words[0] == "sudo" {
		for words = words[1:]; len(words) > 0 && strings.Contains(words[0], "="); { // variables
			words = words[1:]
		}
	}
	if len(words) < 2 || words[0] != "bullpen" && !strings.HasSuffix(words[0], "/bullpen") {
		return nil
	}
	var rest []string
	for _, word := range words[1:] {
		switch word {
		case "…": // and what belongs to a place
			return nil
		case "[flags]": // of a synopsis
			continue
		case "N", "PORT":
			word = "1"
		}
		rest = append(rest, word)
	}
	return rest
}

func understands(t *testing.T, command docs.Command, words []string) {
	t.Helper()
	root := newRootCommand()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(words)
	require.NoError(t, err, "%s: %s", command.At(), command.Shell)
	if cmd == root {
		require.True(t, strings.HasPrefix(words[0], "-"), "%s: %s", command.At(), command.Shell)
		return
	}
	if cmd.DisableFlagParsing {
		return
	}
	require.NoError(t, cmd.ParseFlags(rest), "%s: %s", command.At(), command.Shell)
	if help, err := cmd.Flags().GetBool("help"); err == nil && help {
		return
	}
	require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%s: %s", command.At(), command.Shell)
}
