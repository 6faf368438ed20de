//go:build unix

package mac

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Program is one call of one of the Mac's commands.
type Program struct {
	// Executable is where the program lies: under the root, by the name of the command.
	Executable     string
	Args           []string
	Stdin          *os.File
	Stdout, Stderr io.Writer
}

// call is a running command.
type call struct {
	Program
	root   Root
	name   string
	user   string // on the Mac
	config Machine
	read   int // bytes of standard input
}

// command does what the Mac's does. Its error is a *failure where the Mac has a text and an exit code for it.
type command func(context.Context, *call) error

// failure is the failed end of a command.
type failure struct {
	code int
	text string // for standard error, may be empty
}

func (f *failure) Error() string {
	if f.text == "" {
		return "exit code " + strconv.Itoa(f.code)
	}
	return f.text
}

func failed(code int, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...)}
}

// exitCode is that of a program that a command ran, and which spoke for itself.
func exitCode(code int) error {
	if code == 0 {
		return nil
	}
	return &failure{code: code}
}

// Main runs the program and returns its exit code. It must be the only thing that its process does.
func Main(p Program) int {
	signal.Reset()
	root, err := FindRoot(p.Executable)
	if err != nil {
		fmt.Fprintln(p.Stderr, err)
		return 70
	}
	c := &call{Program: p, root: root, name: filepath.Base(p.Executable), user: callingUser(root)}
	if c.name == internalName && len(p.Args) > 0 {
		c.name, c.Args = p.Args[0], p.Args[1:]
	} else if _, inner := internals()[c.name]; inner && c.name != "tart" {
		c.name = "" // only by the model's own name
	}
	return c.toItsEnd(context.Background())
}

// toItsEnd runs the command, says on standard error what went wrong, and returns the exit code.
func (c *call) toItsEnd(ctx context.Context) int {
	err := c.run(ctx)
	var f *failure
	switch {
	case err == nil:
		return 0
	case errors.As(err, &f):
		if f.text != "" {
			fmt.Fprintln(c.Stderr, strings.TrimSuffix(f.text, "\n"))
		}
		return f.code
	default:
		fmt.Fprintf(c.Stderr, "%s: %v\n", c.name, err)
		return 1
	}
}

// callingUser is the calling user. A program that gives its children an environment of its own, as the node agent does for
// tart, keeps HOME in it.
func callingUser(root Root) string {
	if user := os.Getenv("DEVMAC_USER"); user != "" {
		return user
	}
	if home := os.Getenv("HOME"); filepath.Dir(home) == root.Path("/Users") {
		return filepath.Base(home)
	}
	return "root" // a test that calls a command itself, as launchd would
}

func (c *call) run(ctx context.Context) error {
	do, known := commands()[c.name]
	if !known {
		if do, known = internals()[c.name]; !known {
			return failed(70, "the model Mac has no command %q", c.name)
		}
		if err := c.root.read(machineFile, &c.config); err != nil {
			return err
		}
		return do(ctx, c)
	}
	if err := c.root.read(machineFile, &c.config); err != nil {
		return err
	}
	id, err := c.root.recordCall(c)
	if err != nil {
		return err
	}
	err = c.perform(ctx, do)
	code := 0
	if err != nil {
		code = 1
	}
	var f *failure
	if errors.As(err, &f) {
		code = f.code
	}
	return errors.Join(err, c.root.recordEnd(id, code, c.read))
}

// perform does what the script says, or else what the command does.
func (c *call) perform(ctx context.Context, do command) error {
	rule, err := c.root.fire(c.name, c.Args)
	if err != nil {
		return err
	}
	switch rule.Effect {
	case EffectAnswer:
		return c.answer(rule)
	case EffectKill:
		// SIGKILL: nothing of the command happens, and its caller sees a signal.
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case EffectHang:
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		for range signals { // it has no effect
			continue
		}
	}
	err = do(ctx, c)
	switch rule.Effect {
	case EffectFailAfterwards:
		return errors.Join(c.answer(rule), err)
	case EffectKillAfterwards:
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return err
}

func (c *call) answer(rule Rule) error {
	fmt.Fprint(c.Stdout, rule.Stdout)
	fmt.Fprint(c.Stderr, rule.Stderr)
	return exitCode(rule.Exit)
}

// needsRoot is the refusal of a command that only root may give.
func (c *call) needsRoot(code int, text string) error {
	if c.user == "root" {
		return nil
	}
	return failed(code, "%s", text)
}

// readLine reads one line of standard input and not a byte more: what follows belongs to another program.
func (c *call) readLine() (string, error) {
	var line []byte
	one := make([]byte, 1)
	for {
		n, err := c.Stdin.Read(one)
		c.read += n
		if n == 1 {
			if one[0] == '\n' {
				return string(line), nil
			}
			line = append(line, one[0])
			continue
		}
		if err != nil {
			return string(line), err
		}
	}
}

// readAll reads the rest of standard input.
func (c *call) readAll() ([]byte, error) {
	data, err := io.ReadAll(c.Stdin)
	c.read += len(data)
	return data, err
}
