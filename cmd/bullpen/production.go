//go:build production

package main

import "github.com/spf13/cobra"

func developmentCommands() []*cobra.Command { return nil }

// defaultStateDir is nil: this binary has no one-machine mode.
var defaultStateDir func() (string, error)

// actAnotherPart: this binary has one part.
func actAnotherPart() (code int, answered bool) { return 0, false }
