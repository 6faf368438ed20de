package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/steps"
)

// lockPatience is how long an apply waits for another one: longer than a download of Tart takes on most lines.
const lockPatience = 10 * time.Minute

// exitDeferred is EX_TEMPFAIL: what waits for virtual machines is tried again later.
const exitDeferred = 75

// hostApplyFlags are the command line of bullpen host apply.
type hostApplyFlags struct {
	root           hostRoot
	config, output string
	bootstrap      string
	session        string
	stdin, plan    bool
	hold           bool
	askPassword    bool
	passwordFD     int
}

func newHostApplyCommand() *cobra.Command {
	f := hostApplyFlags{passwordFD: -1}
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Apply a configuration to this Mac, and verify it",
		Long: `Prepare this Mac as a host of the fleet. Each step compares the Mac with the configuration, changes what differs, and verifies the result.
Applying again changes nothing. Steps that would stop virtual machines are deferred while any runs; the others are done, and the exit code is
75. A failed step names the file and the remedy, and stops the apply with code 1; applying again continues there.

Automatic login needs the user's password. It is read from the terminal (--ask-password) or from the first line of a file descriptor
(--password-fd), and is never an argument. See docs/guides/macos.md for the configuration.`,
		Example: `  sudo bullpen host apply --config host.yaml --plan
  sudo bullpen host apply --config host.yaml --ask-password --bootstrap-kubeconfig bootstrap.kubeconfig
  sudo bullpen host apply --config host.yaml --password-fd 3 3</dev/fd/0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "configuration of the Mac (YAML)")
	flags.BoolVar(&f.stdin, "stdin", false, "read configuration and secrets from standard input, in the format of bullpen host bootstrap")
	flags.BoolVar(&f.plan, "plan", false, "print the differences, and change nothing")
	flags.StringVarP(&f.output, "output", "o", "text", "text, or json (one event per line)")
	flags.BoolVar(&f.askPassword, "ask-password", false, "ask for the user's password on the terminal")
	flags.IntVar(&f.passwordFD, "password-fd", -1, "read the user's password from this file descriptor")
	flags.StringVar(&f.bootstrap, "bootstrap-kubeconfig", "", "kubeconfig for the node agent to request its first certificate with")
	flags.StringVar(&f.session, "session", "", "client address of this SSH session (default: from SSH_CONNECTION, which sudo drops)")
	flags.BoolVar(&f.hold, "hold-disruptive", false, "defer steps that would stop virtual machines, also if none runs")
	f.root.add(cmd)
	cmd.MarkFlagsOneRequired("config", "stdin")
	cmd.MarkFlagsMutuallyExclusive("config", "stdin")
	cmd.MarkFlagsMutuallyExclusive("ask-password", "password-fd", "stdin")
	cmd.MarkFlagsMutuallyExclusive("bootstrap-kubeconfig", "stdin")
	return cmd
}

func (f hostApplyFlags) run(cmd *cobra.Command) error {
	if f.output != "text" && f.output != "json" {
		return fmt.Errorf("--output must be text or json, got %q", f.output)
	}
	host, err := f.root.open(true)
	if err != nil {
		return err
	}
	// A dropped connection closes terminal and pipes; a step that has begun must still be finished. The signals are caught, not ignored,
	// because child processes would inherit the latter.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	input := bufio.NewReader(cmd.InOrStdin())
	payload, err := f.payload(cmd, input)
	if err != nil {
		return err
	}
	options, err := f.options(cmd, host, payload, input)
	if err != nil {
		return err
	}
	act := machost.Apply
	if f.plan {
		act = machost.Plan
	}
	_, err = act(cmd.Context(), options)
	if errors.Is(err, machost.ErrBusy) {
		return hostDeferred{err}
	}
	return err
}

// hostDeferred ends the program with the code that says to try again.
type hostDeferred struct{ error }

func (hostDeferred) ExitCode() int { return exitDeferred }

func (f hostApplyFlags) options(cmd *cobra.Command, host machost.Local, payload machost.Payload, input *bufio.Reader) (machost.Options, error) {
	binary, digest, err := ownDigest()
	if err != nil {
		return machost.Options{}, err
	}
	tell := printHostText(cmd.OutOrStdout())
	if f.output == "json" {
		tell = printHostJSON(cmd.OutOrStdout())
	}
	session, err := f.sessionAddress()
	if err != nil {
		return machost.Options{}, err
	}
	facts := steps.Facts{
		Binary: binary, Session: session, Watchdog: startWatchdog(f.root.dir),
		Progress: func(message string) {
			tell(machost.Event{Time: time.Now().UTC(), Phase: machost.PhaseApplying, Message: message})
		},
	}
	facts.Confirm = confirmOnTerminal(cmd.InOrStdin(), cmd.ErrOrStderr())
	if f.stdin {
		facts.Confirm = confirmations(input, tell)
	}
	list, err := steps.For(payload, facts)
	if err != nil {
		return machost.Options{}, err
	}
	return machost.Options{
		Host: host, Steps: list, Events: tell, Secrets: payload.Secrets, Version: version,
		Hash: payload.Config.DriftHash(digest),
		Busy: func(ctx context.Context) (int, error) { return steps.Machines(ctx, host) },
		Hold: f.hold,
		Lock: host.Locker(lockPatience),
	}, nil
}

func (f hostApplyFlags) payload(cmd *cobra.Command, input *bufio.Reader) (machost.Payload, error) {
	if f.stdin {
		payload, err := machost.ReadPayload(input)
		if err == nil {
			err = payload.Config.Validate()
		}
		return payload, err
	}
	config, err := readHostConfig(f.config)
	if err != nil {
		return machost.Payload{}, err
	}
	payload := machost.Payload{Config: config}
	if f.bootstrap != "" {
		text, err := os.ReadFile(f.bootstrap)
		if err != nil {
			return payload, fmt.Errorf("reading the bootstrap kubeconfig: %w", err)
		}
		payload.Secrets.BootstrapKubeconfig = machost.NewSecret(string(text))
	}
	payload.Secrets.Password, err = readHostPassword(cmd.ErrOrStderr(), config.User, f.askPassword, f.passwordFD)
	return payload, err
}

// readHostPassword asks on the terminal, or reads a descriptor. No password is no error.
func readHostPassword(prompt io.Writer, user string, ask bool, descriptor int) (machost.Secret, error) {
	switch {
	case ask:
		_, _ = fmt.Fprintf(prompt, "Password of %s on this Mac: ", user)
		text, err := term.ReadPassword(int(os.Stdin.Fd()))
		_, _ = fmt.Fprintln(prompt)
		if err != nil {
			return machost.Secret{}, fmt.Errorf("reading the password: %w. Without a terminal use --password-fd", err)
		}
		return machost.NewSecret(string(text)), nil
	case descriptor >= 0:
		file := os.NewFile(uintptr(descriptor), "the password's file descriptor")
		if file == nil {
			return machost.Secret{}, fmt.Errorf("--password-fd %d: no such file descriptor", descriptor)
		}
		line, err := bufio.NewReader(io.LimitReader(file, 4096)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return machost.Secret{}, fmt.Errorf("reading the password from --password-fd %d: %w", descriptor, err)
		}
		return machost.NewSecret(strings.TrimSuffix(line, "\n")), nil
	}
	return machost.Secret{}, nil
}

// sessionAddress is where the SSH session comes from; invalid at the console.
func (f hostApplyFlags) sessionAddress() (netip.Addr, error) {
	text := f.session
	if text == "" {
		text, _, _ = strings.Cut(os.Getenv("SSH_CONNECTION"), " ")
	}
	if text == "" {
		return netip.Addr{}, nil
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("--session: %w", err)
	}
	return address.Unmap(), nil
}

// errUnconfirmed reports that the other end has not confirmed that the host can still be reached.
var errUnconfirmed = errors.New("standard input has ended without the confirmation")

// confirmations asks the other end by an event, and reads its answers, a line each, from standard input.
func confirmations(input *bufio.Reader, tell func(machost.Event)) func(context.Context, string) error {
	var lines chan string
	return func(ctx context.Context, token string) error {
		if lines == nil {
			lines = make(chan string)
			go func() {
				defer close(lines)
				for {
					line, err := input.ReadString('\n')
					if err != nil {
						return
					}
					lines <- strings.TrimSpace(line) // until the program ends: a later question may be answered by it
				}
			}()
		}
		tell(machost.Event{Time: time.Now().UTC(), Phase: machost.PhaseConfirm, Token: token})
		for {
			select {
			case line, open := <-lines:
				if !open {
					return errUnconfirmed
				}
				if line == "confirm "+token {
					return nil
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func fileSHA256(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading the running program: %w", err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("reading the running program: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
