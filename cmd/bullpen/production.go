//go:build production

package main

import (
	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

func developmentCommands() []*cobra.Command { return nil }

// defaultStateDir is nil: this binary has no one-machine mode.
var defaultStateDir func() (string, error)

// localGitHubOf is nil, as defaultStateDir is.
var localGitHubOf func(site cli.Site) (localGitHub, error)

// actAnotherPart: this binary has one part.
func actAnotherPart() (code int, answered bool) { return 0, false }
