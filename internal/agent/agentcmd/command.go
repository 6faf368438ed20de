package agentcmd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// Args says which arguments a command takes behind its flags.
type Args int

// NoArgs, AnyArgs and SomeArgs: none, any number, at least one.
const (
	NoArgs Args = iota
	AnyArgs
	SomeArgs
)

// Run executes a command whose flags are parsed.
type Run func(ctx context.Context, args []string) error

// Command is one subcommand.
type Command struct {
	// Use is the synopsis; its first word is the command's name.
	Use, Short, Long, Example string
	// Required are the flags that must be given.
	Required []string
	Args     Args
	// Define defines the flags and returns what to run once they are parsed.
	Define func(flags *flag.FlagSet) Run
	// Commands are below this one.
	Commands []Command
}

// Name of the command.
func (c *Command) Name() string {
	name, _, _ := strings.Cut(c.Use, " ")
	return name
}

// Check returns an error unless the required flags are set and the number of arguments is allowed.
func (c *Command) Check(set func(flag string) bool, args []string) error {
	for _, name := range c.Required {
		if !set(name) {
			return fmt.Errorf("%s requires --%s", c.Name(), name)
		}
	}
	switch {
	case c.Args == NoArgs && len(args) > 0:
		return fmt.Errorf("%s takes no arguments, got %q", c.Name(), args[0])
	case c.Args == SomeArgs && len(args) == 0:
		return fmt.Errorf("%s requires a command after --", c.Name())
	}
	return nil
}

// Main runs one command of the program and returns the exit code. Help goes to standard output, errors to standard error.
func Main(ctx context.Context, program Program, version string, args []string) int {
	name := strings.Join(append([]string{program.Name}, program.Prefix...), " ")
	if len(args) == 1 && (args[0] == "--version" || args[0] == "-version") {
		fmt.Println(name, "version", version)
		return 0
	}
	err := dispatch(ctx, name, Command{Commands: Commands(program)}, args)
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, text)
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 1
}

// dispatch runs the command that the first argument names, or the one that it is given.
func dispatch(ctx context.Context, path string, c Command, args []string) error {
	if len(args) > 0 {
		for _, sub := range c.Commands {
			if sub.Name() == args[0] {
				return dispatch(ctx, path+" "+args[0], sub, args[1:])
			}
		}
	}
	if c.Define == nil {
		return group(path, c, args)
	}
	flags := flag.NewFlagSet(c.Name(), flag.ContinueOnError)
	flags.SetOutput(discard{})
	run := c.Define(flags)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage(path, c, flags))
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w (see %s --help)", err, path)
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if err := c.Check(func(name string) bool { return given[name] }, flags.Args()); err != nil {
		return err
	}
	return run(ctx, flags.Args())
}

// group shows help, or fails: exit 0 of a poller means that it has delivered its response, so a mistyped command must not return it.
func group(path string, c Command, args []string) error {
	if len(args) > 0 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
		fmt.Print(usage(path, c, nil))
		return nil
	}
	var names []string
	for _, sub := range c.Commands {
		names = append(names, sub.Name())
	}
	if len(args) == 0 {
		return fmt.Errorf("missing subcommand: %s", strings.Join(names, ", "))
	}
	return fmt.Errorf("unknown command %q: use one of %s", args[0], strings.Join(names, ", "))
}

func usage(path string, c Command, flags *flag.FlagSet) string {
	var b strings.Builder
	text := c.Long
	if text == "" {
		text = c.Short
	}
	if text != "" {
		b.WriteString(text + "\n\n")
	}
	_, synopsis, _ := strings.Cut(c.Use, " ")
	b.WriteString("Usage:\n  " + strings.TrimSpace(path+" "+synopsis) + "\n")
	if len(c.Commands) > 0 {
		b.WriteString("\nCommands:\n")
		for _, sub := range c.Commands {
			fmt.Fprintf(&b, "  %-9s %s\n", sub.Name(), sub.Short)
		}
	}
	if c.Example != "" {
		b.WriteString("\nExamples:\n" + c.Example + "\n")
	}
	if flags == nil {
		return b.String()
	}
	header := "\nFlags:\n"
	flags.VisitAll(func(f *flag.Flag) {
		kind, says := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "%s  --%s\n        %s\n", header, strings.TrimSpace(f.Name+" "+kind), says)
		header = ""
	})
	return b.String()
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// logger writes to stderr, where a container's log is read. It never gets a token or a configuration.
func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }
