package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/steps"
)

// hostPrepareFlags are the command line of bullpen host prepare.
type hostPrepareFlags struct {
	root          hostRoot
	user          string
	passwordStdin bool
}

func newHostPrepareCommand() *cobra.Command {
	var f hostPrepareFlags
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Set up passwordless sudo and automatic login on this Mac",
		Long: `Set up what needs the password of the user that virtual machines run as: passwordless sudo, and automatic login. Everything else is done
by ` + "`bullpen host bootstrap`" + ` remotely, or by ` + "`bullpen host apply`" + ` here.

macOS does not report a wrong password. It tries the password when the login window restarts, which this command does, and overwrites a wrong
one, so that no virtual machine starts. The command verifies this each time, with or without a password. Exit code 1: the Mac is not ready.

The password is read twice from the terminal. If it is empty, the stored one is kept, and only verified. It must be the user's login password.`,
		Example: `  sudo bullpen host prepare --user ci
  sudo bullpen host prepare --user ci --password-stdin < password`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.Flags().StringVar(&f.user, "user", "", "account that logs in at the console (required)")
	cmd.Flags().BoolVar(&f.passwordStdin, "password-stdin", false, "read the password from the first line of standard input; empty: only verify")
	f.root.add(cmd)
	cobra.CheckErr(cmd.MarkFlagRequired("user"))
	return cmd
}

func (f hostPrepareFlags) run(cmd *cobra.Command) error {
	host, err := f.root.open(true)
	if err != nil {
		return err
	}
	payload := machost.Payload{Config: machost.Config{User: f.user}}
	if err := payload.Config.Validate(); err != nil {
		return err
	}
	if f.passwordStdin {
		payload.Secrets.Password, err = passwordFrom(cmd.InOrStdin())
	} else {
		payload.Secrets.Password, err = askTwice(cmd.ErrOrStderr(), f.user, readHidden)
	}
	if err != nil {
		return err
	}
	list, err := steps.Prepare(payload, steps.Facts{})
	if err != nil {
		return err
	}
	return applyPart(cmd.Context(), cmd.OutOrStdout(), host, list, payload.Secrets)
}

// applyPart applies some of the steps.
func applyPart(ctx context.Context, out io.Writer, host machost.Local, list []machost.Step, secrets machost.Secrets) error {
	_, err := machost.Apply(ctx, machost.Options{
		Host: host, Steps: list, Secrets: secrets, Version: version, Events: printHostText(out),
		Busy: func(ctx context.Context) (int, error) { return steps.Machines(ctx, host) },
		Lock: host.Locker(lockPatience),
	})
	if errors.Is(err, machost.ErrBusy) {
		return hostDeferred{err}
	}
	return err
}

// passwordFrom reads one line. An empty line means no password; further lines are not read.
func passwordFrom(in io.Reader) (machost.Secret, error) {
	const most = 4096
	line, err := bufio.NewReader(io.LimitReader(in, most)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return machost.Secret{}, fmt.Errorf("reading the password from standard input: %w", err)
	}
	return machost.NewSecret(strings.TrimSuffix(line, "\n")), nil
}

var errPasswordsDiffer = errors.New("the passwords differ; nothing was changed")

// askTwice asks for the password twice, because the input is hidden. Empty input is no password.
func askTwice(prompt io.Writer, user string, read func() ([]byte, error)) (machost.Secret, error) {
	_, _ = fmt.Fprintf(prompt, "Password of %s on this Mac (empty: only verify): ", user)
	first, err := read()
	_, _ = fmt.Fprintln(prompt)
	if err != nil || len(first) == 0 {
		return machost.Secret{}, err
	}
	_, _ = fmt.Fprint(prompt, "Again: ")
	second, err := read()
	_, _ = fmt.Fprintln(prompt)
	if err != nil {
		return machost.Secret{}, err
	}
	if !bytes.Equal(first, second) {
		return machost.Secret{}, errPasswordsDiffer
	}
	return machost.NewSecret(string(first)), nil
}

func readHidden() ([]byte, error) {
	text, err := term.ReadPassword(int(os.Stdin.Fd()))
	if err != nil {
		return nil, fmt.Errorf("reading the password: %w. Without a terminal use --password-stdin", err)
	}
	return text, nil
}

func newHostGrantSudoCommand() *cobra.Command {
	var root hostRoot
	var user string
	cmd := &cobra.Command{
		Use:    "grant-sudo",
		Short:  "Let a user of this Mac become root without a password",
		Hidden: true, // `bullpen host bootstrap` runs it, under the one sudo that takes a password
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			host, err := root.open(true)
			if err != nil {
				return err
			}
			list, err := steps.GrantSudo(user)
			if err != nil {
				return err
			}
			return applyPart(cmd.Context(), cmd.OutOrStdout(), host, list, machost.Secrets{})
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "account that logs in at the console (required)")
	root.add(cmd)
	cobra.CheckErr(cmd.MarkFlagRequired("user"))
	return cmd
}
