package commandline

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Options of Prepare.
type Options struct {
	// Hints say how to find the value of an argument, by its name in a synopsis: POOL.
	Hints map[string]string
	// Instead says what to run for words that people try, and that are no commands of the root.
	Instead map[string]string
}

// Prepare has root and every command below it report errors in this package's way. A command without a subcommand that needs one prints its
// help and fails: exit code 0 would read as success to a script. Call it once the tree is complete.
func Prepare(root *cobra.Command, options Options) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err) })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return checkGiven(cmd) }
	if !root.Runnable() {
		root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	prepare(root, options)
}

func prepare(cmd *cobra.Command, options Options) {
	for _, sub := range cmd.Commands() {
		prepare(sub, options)
	}
	if cmd.DisableFlagParsing {
		return // it reads its own command line
	}
	if !cmd.Runnable() && cmd.HasSubCommands() {
		cmd.RunE = missingSubcommand
	}
	if !cmd.Runnable() {
		return
	}
	own := cmd.Args
	if cmd.HasSubCommands() {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0], options.Instead)
			}
			if own == nil {
				return nil
			}
			return own(cmd, args)
		}
		return
	}
	wanted, known := arguments(cmd.Use)
	if !known {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := wanted.check(cmd, args, options.Hints); err != nil || own == nil {
			return err
		}
		return own(cmd, args)
	}
}

// missingSubcommand is what a group of commands runs.
func missingSubcommand(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(cmd.ErrOrStderr())
	if err := cmd.Help(); err != nil {
		return err
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return fmt.Errorf("missing subcommand of `%s`: %s", cmd.CommandPath(), strings.Join(names, ", "))
}

func unknownCommand(cmd *cobra.Command, word string, instead map[string]string) error {
	text := fmt.Sprintf("unknown command %q of `%s`", word, cmd.CommandPath())
	if better := instead[word]; better != "" && !cmd.HasParent() {
		return errors.New(text + ": use " + better)
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, append([]string{sub.Name()}, sub.Aliases...)...)
		}
	}
	near := Near(word, names)
	for i, name := range near {
		near[i] = "`" + cmd.CommandPath() + " " + name + "`"
	}
	return errors.New(text + suggestion(near, cmd))
}

// suggestion is the sentence that follows what is unknown.
func suggestion(near []string, cmd *cobra.Command) string {
	if len(near) == 0 {
		return ". See `" + cmd.CommandPath() + " --help`."
	}
	return ". Did you mean " + strings.Join(near, " or ") + "?"
}
