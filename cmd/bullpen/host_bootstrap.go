package main

import (
	"bufio"
	"context"
	"debug/macho"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/remote"
)

// hostBootstrapFlags are the command line of bullpen host bootstrap.
type hostBootstrapFlags struct {
	login           hostLogin
	config, output  string
	bootstrap       string
	binary          string
	anyBinary, plan bool
	ask, stdin      bool
	wait            time.Duration
	root            string
}

func newHostBootstrapCommand() *cobra.Command {
	var f hostBootstrapFlags
	cmd := &cobra.Command{
		Use:   "bootstrap ADDRESS",
		Short: "Apply a configuration to a Mac over SSH",
		Long: `Prepare a Mac as a host of the fleet from here: wait for SSH, upload this program for Macs, and run "bullpen host apply" there.
Configuration and secrets go through standard input only. A dropped connection is resumed, and a second run changes nothing.

The host key must be known: by --host-key, by the known hosts, or by --trust-first, which accepts and stores the first key. Otherwise
you are asked. You log in with a key, of --identity or of your ssh-agent.

The password is the user's on the Mac. It is needed once, for sudo and for automatic login, and is tried exactly once, because macOS locks
accounts. It is read from the terminal (--ask-password) or from standard input (--password-stdin), and is never an argument.

Exit codes: 0 done, 1 failed, 75 steps that would stop virtual machines are deferred until none runs.`,
		Example: `  bullpen host bootstrap 10.0.0.21 --config host.yaml --plan
  bullpen host bootstrap 10.0.0.21 --config host.yaml --bootstrap-kubeconfig bootstrap.kubeconfig --ask-password
  bullpen host bootstrap mac-1.example:22 --user ci --identity ~/.ssh/fleet --config host.yaml \
    --host-key SHA256:ZfbIFEfTGnKUIDgrCbYTYAT1WaXhV7Vl+xsXuSRtPbc --password-stdin < password`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	f.login.add(flags)
	flags.StringVar(&f.config, "config", "", "configuration of the Mac (YAML)")
	flags.StringVar(&f.bootstrap, "bootstrap-kubeconfig", "", "kubeconfig for the node agent to request its first certificate with")
	flags.BoolVar(&f.ask, "ask-password", false, "ask for the user's password on the terminal")
	flags.BoolVar(&f.stdin, "password-stdin", false, "read the user's password from the first line of standard input")
	flags.StringVar(&f.binary, "binary", "", "program to upload (default: this one on a Mac, else bullpen-darwin-arm64 in the same directory)")
	flags.BoolVar(&f.plan, "plan", false, "print the differences, and change nothing except the uploaded program")
	flags.StringVarP(&f.output, "output", "o", "text", "text, or json (one event per line, and a summary)")
	flags.DurationVar(&f.wait, "wait", 5*time.Minute, "timeout of waiting for SSH")
	flags.BoolVar(&f.anyBinary, "any-binary", false, "upload a program that is not for Macs, to a model of one")
	flags.StringVar(&f.root, "remote-root", "", "the host is the model of a Mac in this directory")
	for _, name := range []string{"any-binary", "remote-root"} {
		cobra.CheckErr(flags.MarkHidden(name))
	}
	cobra.CheckErr(cmd.MarkFlagRequired("config"))
	cmd.MarkFlagsMutuallyExclusive("ask-password", "password-stdin")
	cmd.MarkFlagsMutuallyExclusive("host-key", "trust-first")
	cmd.MarkFlagsMutuallyExclusive("host-key", "known-hosts")
	return cmd
}

func (f hostBootstrapFlags) run(cmd *cobra.Command, address string) error {
	if f.output != "text" && f.output != "json" {
		return fmt.Errorf("--output must be text or json, got %q", f.output)
	}
	options, err := f.options(cmd)
	if err != nil {
		return err
	}
	target, closeAgent, err := f.login.target(cmd, address, !f.stdin)
	if err != nil {
		return err
	}
	defer closeAgent()
	if target.User == "" {
		target.User = options.Payload.Config.User
	}
	options.Target = target
	result, err := remote.Bootstrap(cmd.Context(), options)
	f.summary(cmd.OutOrStdout(), address, result, err)
	var unknown *remote.HostKeyError
	var sudo *remote.SudoError
	switch {
	case errors.Is(err, machost.ErrBusy):
		return hostDeferred{err}
	case errors.As(err, &unknown) && unknown.Unknown():
		return fmt.Errorf("%w: give --host-key %s, or --trust-first", err, strings.Join(unknown.Got, ""))
	case errors.As(err, &sudo) && sudo.Missing && !f.plan:
		return fmt.Errorf("%w. Use --ask-password or --password-stdin", err)
	case cmd.Context().Err() != nil:
		return errors.New("interrupted. A started apply continues on the Mac; run the command again to wait for it and continue")
	}
	return err
}

// options are all but the target. Invalid files and flags are reported before any connection.
func (f hostBootstrapFlags) options(cmd *cobra.Command) (remote.Options, error) {
	o := remote.Options{Plan: f.plan, RemoteRoot: f.root, Timing: remote.Timing{Wait: f.wait}}
	var err error
	if o.Payload.Config, err = readHostConfig(f.config); err != nil {
		return o, err
	}
	if o.Binary, err = f.program(); err != nil {
		return o, err
	}
	if f.bootstrap != "" {
		text, err := os.ReadFile(f.bootstrap)
		if err != nil {
			return o, fmt.Errorf("reading the bootstrap kubeconfig: %w", err)
		}
		o.Payload.Secrets.BootstrapKubeconfig = machost.NewSecret(string(text))
	}
	switch {
	case f.ask:
		text, err := askSecret(cmd.Context(), cmd.ErrOrStderr(), fmt.Sprintf("Password of %s on the Mac: ", o.Payload.Config.User))
		if err != nil {
			return o, fmt.Errorf("reading the password: %w. Without a terminal use --password-stdin", err)
		}
		o.Payload.Secrets.Password = machost.NewSecret(string(text))
	case f.stdin:
		line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 4096)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return o, fmt.Errorf("reading the password from standard input: %w", err)
		}
		o.Payload.Secrets.Password = machost.NewSecret(strings.TrimSuffix(line, "\n"))
	}
	if f.output == "json" {
		o.Events = printHostJSON(cmd.OutOrStdout())
	} else {
		o.Events = printBootstrapText(cmd.OutOrStdout())
	}
	return o, nil
}

// darwinProgram is what the program for Macs is called beside one for another system.
const darwinProgram = "bullpen-darwin-arm64"

// program finds the file to upload.
func (f hostBootstrapFlags) program() (string, error) {
	path := f.binary
	if path == "" {
		own, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("finding the running program: %w", err)
		}
		if path = own; runtime.GOOS != "darwin" || runtime.GOARCH != "arm64" {
			path = filepath.Join(filepath.Dir(own), darwinProgram)
		}
	}
	const build = "Build it with `CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build -o " + darwinProgram + " ./cmd/bullpen`, and use --binary or store it in the directory of this program"
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("program to upload not found: %s. %s", path, build)
	}
	if f.anyBinary {
		return path, nil
	}
	if err := forMacs(path); err != nil {
		return "", fmt.Errorf("cannot upload %s: %w. %s", path, err, build)
	}
	return path, nil
}

// forMacs says why the file is no program for a Mac with Apple silicon.
func forMacs(path string) error {
	of := func(cpu macho.Cpu, kind macho.Type) bool { return cpu == macho.CpuArm64 && kind == macho.TypeExec }
	if fat, err := macho.OpenFat(path); err == nil {
		defer func() { _ = fat.Close() }()
		if slices.ContainsFunc(fat.Arches, func(a macho.FatArch) bool { return of(a.Cpu, a.Type) }) {
			return nil
		}
		return errors.New("it has no code for Apple silicon")
	}
	file, err := macho.Open(path)
	var format *macho.FormatError
	switch {
	case errors.As(err, &format), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it is not a macOS program")
	case err != nil:
		return err
	}
	defer func() { _ = file.Close() }()
	if !of(file.Cpu, file.Type) {
		return fmt.Errorf("it is a file of type %s for %s, not a program for Apple silicon", file.Type, file.Cpu)
	}
	return nil
}

// printBootstrapText prints the stages of the way there, and then the steps as `bullpen host apply` does.
func printBootstrapText(w io.Writer) func(machost.Event) {
	steps := printHostText(w)
	return func(e machost.Event) {
		if !slices.Contains(remote.Stages(), e.Step) {
			steps(e)
			return
		}
		if e.Message != "" && e.Phase != machost.PhaseFailed { // what failed, the program says last of all
			fmt.Fprintln(w, printable(fmt.Sprintf("%s  %-14s %s", hostMarks[e.Phase], e.Step, e.Message)))
		}
	}
}

// bootstrapSummary is the last line of JSON.
type bootstrapSummary struct {
	Phase    string   `json:"phase"` // Summary
	Address  string   `json:"address"`
	HostKey  string   `json:"hostKey,omitempty"`
	Changed  []string `json:"changed,omitempty"`
	Deferred []string `json:"deferred,omitempty"`
	Hash     string   `json:"hash,omitempty"`
	Error    string   `json:"error,omitempty"`
}

// summary says what came of it in a line or two.
func (f hostBootstrapFlags) summary(w io.Writer, address string, r remote.Result, failure error) {
	if f.output == "json" {
		s := bootstrapSummary{Phase: "Summary", Address: address, HostKey: r.HostKey, Changed: r.Report.Changed, Deferred: r.Report.Deferred, Hash: r.Hash}
		if failure != nil {
			s.Error = failure.Error()
		}
		_ = json.NewEncoder(w).Encode(s)
		return
	}
	if r.HostKey != "" {
		fmt.Fprintf(w, "\n%s has the host key %s\n", printable(address), r.HostKey)
	}
	changed, did := strings.Join(r.Report.Changed, ", "), "changed"
	if f.plan {
		did = "would change"
	}
	switch {
	case changed != "":
		fmt.Fprintf(w, "%s: %s\n", did, changed)
	case failure == nil:
		fmt.Fprintln(w, "nothing to do")
	}
	if len(r.Report.Deferred) > 0 {
		fmt.Fprintf(w, "deferred until no virtual machine runs: %s\n", strings.Join(r.Report.Deferred, ", "))
	}
}

// askSecret asks on the terminal without echo. Ctrl-C ends it, and gives the terminal its echo back.
func askSecret(ctx context.Context, prompt io.Writer, question string) ([]byte, error) {
	terminal := int(os.Stdin.Fd())
	state, err := term.GetState(terminal)
	if err != nil {
		return nil, err
	}
	fmt.Fprint(prompt, question)
	defer fmt.Fprintln(prompt)
	type answer struct {
		text []byte
		err  error
	}
	answers := make(chan answer, 1)
	go func() { // nothing can end a read from a terminal: after Ctrl-C it is left to the end of the program
		text, err := term.ReadPassword(terminal)
		answers <- answer{text, err}
	}()
	select {
	case a := <-answers:
		return a.text, a.err
	case <-ctx.Done():
		_ = term.Restore(terminal, state)
		return nil, ctx.Err()
	}
}

// askYes asks a question. Everything but y and yes is a no.
func askYes(ctx context.Context, in io.Reader, prompt io.Writer, question string) (bool, error) {
	fmt.Fprint(prompt, question+" [y/N] ")
	answers := make(chan string, 1)
	go func() { // as above
		line, _ := bufio.NewReader(in).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answers:
		return a == "y" || a == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
