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

// hostPrepareFlags are what `bullpen host prepare` is told.
type hostPrepareFlags struct {
	root          hostRoot
	user          string
	passwordStdin bool
}

func newHostPrepareCommand() *cobra.Command {
	var f hostPrepareFlags
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Set up, on this Mac, what takes its user's password: sudo without one, and automatic login",
		Long: `Sets up, on this Mac, what takes the password of the user that virtual machines run as: sudo without a password, and automatic login. All the rest is done
by ` + "`bullpen host bootstrap`" + ` from afar, or ` + "`bullpen host apply`" + ` here.

macOS does not say whether the password is right. It tries it when the login window is restarted, which this does, and overwrites a wrong one, so that no virtual
machine ever starts. That is looked at each time, also when everything was there already, and with or without a password given: exit code 1 says that the Mac
is not ready.

The password is asked for twice on the terminal; nothing entered leaves the stored one as it is, and only has everything looked at. It must be that of the user, with which one logs
in.`,
		Example: `  sudo bullpen host prepare --user ci
  sudo bullpen host prepare --user ci --password-stdin < password`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.Flags().StringVar(&f.user, "user", "", "the account that logs in at the console (required)")
	cmd.Flags().BoolVar(&f.passwordStdin, "password-stdin", false, "read the password from standard input, up to the end of its first line; nothing there: only look")
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

// passwordFrom reads one line. What follows it is left alone, and says that no password was meant.
func passwordFrom(in io.Reader) (machost.Secret, error) {
	const most = 4096
	line, err := bufio.NewReader(io.LimitReader(in, most)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return machost.Secret{}, fmt.Errorf("reading the password from standard input: %w", err)
	}
	return machost.NewSecret(strings.TrimSuffix(line, "\n")), nil
}

var errPasswordsDiffer = errors.New("the two passwords are not the same: nothing was changed")

// askTwice asks for the password, and once more, because nobody sees what he types. Nothing entered is no password.
func askTwice(prompt io.Writer, user string, read func() ([]byte, error)) (machost.Secret, error) {
	_, _ = fmt.Fprintf(prompt, "Password of %s on this Mac (nothing: only look at what is there): ", user)
	first, err := read()
	_, _ = fmt.Fprintln(prompt)
	if err != nil || len(first) == 0 {
		return machost.Secret{}, err
	}
	_, _ = fmt.Fprint(prompt, "Once more: ")
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
		return nil, fmt.Errorf("asking for the password: %w; without a terminal use --password-stdin", err)
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
	cmd.Flags().StringVar(&user, "user", "", "the account that logs in at the console (required)")
	root.add(cmd)
	cobra.CheckErr(cmd.MarkFlagRequired("user"))
	return cmd
}
