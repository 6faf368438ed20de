//go:build unix

package tart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// Program is one call of the fake.
type Program struct {
	// Self is the argument vector that starts this program again, without arguments of its own.
	Self []string
	// Args follow it.
	Args           []string
	Stdin          *os.File
	Stdout, Stderr io.Writer
}

// Main runs the program and returns its exit code. It must be the only thing that its process does: it changes the
// working directory, and listens to signals. Called by the name launchctl, it is that.
func Main(p Program) int {
	signal.Reset() // to the defaults, whatever the process handled before
	if len(p.Self) == 1 && filepath.Base(os.Args[0]) == "launchctl" {
		p.Args = append([]string{"launchctl"}, p.Args...)
	}
	err := p.run(context.Background())
	var f *failure
	var guest exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &guest):
		return int(guest)
	case errors.As(err, &f):
		if f.text != "" {
			fmt.Fprintln(p.Stderr, strings.TrimSuffix(f.text, "\n"))
		}
		return f.code
	default:
		fmt.Fprintln(p.Stderr, "Error:", err)
		return codeFailed
	}
}

// exitCode is that of a command in the guest, which `exec` passes on (Tart 4.1).
type exitCode int

func (e exitCode) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// command is a subcommand, ready to run.
type command struct {
	Program
	place
	script Script
	rule   Rule // the one that fired, if any
	flags  *pflag.FlagSet
	args   []string // what remains of the arguments when flags are read
	// corruptible is what EffectCorrupt leaves without one of its files.
	corruptible vmDir
}

// subcommand is one row of the table of commands.
type subcommand struct {
	usage string
	// arguments are how many there may be; most is -1 if there is no limit.
	least, most int
	flags       func(*pflag.FlagSet)
	// keepsLeftovers is set for the two commands that do not collect leftovers in ~/.tart/tmp (Tart 4.2).
	keepsLeftovers bool
	// passthrough is set when flags behind the first argument are not ours.
	passthrough bool
	run         func(context.Context, *command) error
}

// commands are all that the fake knows.
func commands() map[string]subcommand {
	return map[string]subcommand{
		"clone":   {usage: "clone <source-name> <new-name>", least: 2, most: 2, flags: cloneFlags, keepsLeftovers: true, run: runClone},
		"pull":    {usage: "pull <remote-name>", least: 1, most: 1, flags: pullFlags, keepsLeftovers: true, run: runPull},
		"set":     {usage: "set <name>", least: 1, most: 1, flags: setFlags, run: runSet},
		"run":     {usage: "run <name>", least: 1, most: 1, flags: runFlags, run: runRun},
		"exec":    {usage: "exec [-i] [-t] <name> <command> ...", least: 2, most: -1, flags: execFlags, passthrough: true, run: runExec},
		"ip":      {usage: "ip <name>", least: 1, most: 1, flags: ipFlags, run: runIP},
		"stop":    {usage: "stop <name>", least: 1, most: 1, flags: stopFlags, run: runStop},
		"suspend": {usage: "suspend <name>", least: 1, most: 1, run: runSuspend},
		"delete":  {usage: "delete <name> ...", least: 1, most: -1, run: runDelete},
		"list":    {usage: "list", flags: listFlags, run: runList},
		"get":     {usage: "get <name>", least: 1, most: 1, flags: formatFlags, run: runGet},
		"fqn":     {usage: "fqn <name>", least: 1, most: 1, run: runFQN},
		"prune":   {usage: "prune", flags: pruneFlags, run: runPrune},
		"login":   {usage: "login <host>", least: 1, most: 1, flags: loginFlags, run: runLogin},

		"ps":        {usage: "ps", most: -1, passthrough: true, keepsLeftovers: true, run: runPs},
		"launchctl": {usage: "launchctl <subcommand> <target>", least: 2, most: 3, flags: launchctlFlags, keepsLeftovers: true, run: runLaunchctl},
	}
}

func (p Program) run(ctx context.Context) error {
	if len(p.Args) == 2 && p.Args[0] == guestCommand {
		return runGuest(p.Args[1])
	}
	home := os.Getenv("TART_HOME")
	if home == "" {
		return errors.New("this is a fake of Tart: set TART_HOME to a directory of its own, so that it cannot touch a real Tart's VMs")
	}
	home, err := filepath.Abs(home)
	if err != nil {
		return err
	}
	c := &command{Program: p, place: place(home)}
	if err := c.place.make(); err != nil {
		return err
	}
	if c.script, err = readScript(filepath.Join(home, ScriptFile)); err != nil {
		return err
	}
	name := ""
	if len(p.Args) > 0 {
		name = p.Args[0]
	}
	sub, known := commands()[name]
	if name == "--version" {
		known, sub = true, subcommand{run: func(context.Context, *command) error {
			fmt.Fprintln(p.Stdout, c.script.Version)
			return nil
		}}
	}
	if !known {
		return usage("Unexpected argument '"+name+"'", "<subcommand>")
	}
	if err := c.parse(sub); err != nil {
		return err
	}
	if err := c.recordCall(); err != nil {
		return err
	}
	return c.perform(ctx, name, sub)
}

func usage(text, form string) error {
	return failed(codeUsage, "Error: %s\nUsage: tart %s\n  See 'tart --help' for more information.", text, form)
}

// parse reads flags and arguments; what is wrong with them is answered with 64 and the usage on stderr (Tart 4.1).
func (c *command) parse(sub subcommand) error {
	c.flags = pflag.NewFlagSet("tart", pflag.ContinueOnError)
	c.flags.SetOutput(io.Discard)
	c.flags.SetInterspersed(!sub.passthrough)
	if sub.flags != nil {
		sub.flags(c.flags)
	}
	if err := c.flags.Parse(c.Args[1:]); err != nil {
		return usage(err.Error(), sub.usage)
	}
	c.args = c.flags.Args()
	if len(c.args) < sub.least {
		return usage("Missing expected argument", sub.usage)
	}
	if sub.most >= 0 && len(c.args) > sub.most {
		return usage("Unexpected argument '"+c.args[sub.most]+"'", sub.usage)
	}
	return nil
}

// perform does what the rule that fires says, and what the command itself does, where the rule leaves that.
func (c *command) perform(ctx context.Context, name string, sub subcommand) error {
	about := ""
	if len(c.args) > 0 {
		about = c.args[0]
	}
	if name == "clone" {
		about = c.args[1] // the VM that is made
	}
	rule, err := c.fire(name, about)
	if err != nil {
		return err
	}
	c.rule = rule
	switch rule.Effect {
	case EffectAnswer, EffectDelay, EffectHang, EffectFailAfterwards, EffectCorrupt:
		pause(ctx, rule.After)
	}
	switch rule.Effect {
	case EffectHang:
		return c.hang()
	case EffectAnswer:
		return c.answer(about)
	}
	if !sub.keepsLeftovers {
		collect(c.tmp())
		collect(c.guests())
	}
	if err := sub.run(ctx, c); err != nil {
		return err
	}
	if rule.Effect == EffectFailAfterwards {
		return c.answer(about)
	}
	return nil
}

func (c *command) answer(about string) error {
	if c.rule.Message != "" {
		return message(c.rule.Message, about)
	}
	fmt.Fprint(c.Stdout, c.rule.Stdout)
	if c.rule.Exit == 0 && c.rule.Stderr == "" {
		return nil
	}
	if c.rule.Exit == 0 {
		fmt.Fprint(c.Stderr, c.rule.Stderr)
		return nil
	}
	return &failure{code: c.rule.Exit, text: c.rule.Stderr}
}

// hang never ends. A child in a group of its own has the output open as well: a caller that kills only this process still
// waits for the end of the output, if it waits for that.
func (c *command) hang() error {
	child := exec.Command("/bin/sleep", "15") //nolint:noctx // longer than any test should wait
	child.Stdout, child.Stderr = c.Stdout, c.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := child.Start(); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2)
	for range ended { // they are heard, and change nothing
		continue
	}
	return nil
}

// fire finds the first rule for this command that is due, and counts that it was asked.
func (c *command) fire(name, about string) (Rule, error) {
	for i, r := range c.script.Rules {
		if r.Command != "" && r.Command != name {
			continue
		}
		if fits, err := path.Match(r.Name, about); r.Name != "" && (err != nil || !fits) {
			continue
		}
		count, err := c.count(strconv.Itoa(i))
		if err != nil {
			return Rule{}, err
		}
		if count > r.Skip && (r.Times == 0 || count <= r.Skip+r.Times) {
			return r, nil
		}
	}
	return Rule{}, nil
}

// count adds one to a counter that all processes share.
func (c *command) count(key string) (int, error) {
	lock, err := lockFile(context.Background(), c.counterLock(), nil)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	file := filepath.Join(c.fired(), key)
	written, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	n, _ := strconv.Atoi(string(written)) // nothing yet is 0
	return n + 1, os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600)
}

// pause waits, in a process whose end is the only thing that could make it stop waiting.
func pause(ctx context.Context, d Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(time.Duration(d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Call is one call of the fake, as Calls lists them.
type Call struct {
	Time time.Time `json:"time"`
	PID  int       `json:"pid"`
	Args []string  `json:"args"`
}

// recordCall is a line per call; one write of it is one line, however many processes write.
func (c *command) recordCall() error {
	line, err := json.Marshal(Call{Time: time.Now(), PID: os.Getpid(), Args: c.Args})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(c.calls(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// Calls are the calls of the fake whose TART_HOME this is, in their order. Calls with bad arguments are not among them.
func Calls(home string) ([]Call, error) {
	data, err := os.ReadFile(place(home).calls())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var calls []Call
	for line := range strings.Lines(string(data)) {
		var call Call
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			return nil, fmt.Errorf("reading the calls: %w", err)
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// fill puts the name where a message has it.
func fill(text, name string) string { return strings.ReplaceAll(text, "%s", name) }
