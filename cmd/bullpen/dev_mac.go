//go:build !production

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
)

// devMacFlags are the flags of `bullpen dev mac`, as given.
type devMacFlags struct {
	root, user string
	passwords  string
	port       int
	source     string
}

func newDevMacCommand() *cobra.Command {
	var f devMacFlags
	cmd := &cobra.Command{
		Use:   "mac --root DIR",
		Short: "Boot a model of a Mac, for `bullpen host bootstrap` (development only)",
		Long: `Boot a model of a Mac in a directory, and accept SSH logins, until interrupted.

It is NOT a Mac and NOT isolated from this machine. Its commands (pfctl, launchctl, defaults, sudo, …) are this program under
other names. Its files are in the directory, and processes that its launchd starts run with your rights. The packet filter's
rules decide which SSH connections are accepted; no packet of this machine is filtered. docs/internals/model-mac.md describes
the model. Use its password for nothing else.

A directory with a model is booted in its last state. It needs Linux, OpenSSH's server and libnss_wrapper
(scripts/prerequisites.sh sshd).`,
		Example: `  bullpen dev mac --root /tmp/mac --ssh-port 2222

  # In another terminal
  /tmp/mac/sbin/pfctl -sr # unverified: the tests use other directories
  ssh -i /tmp/mac/.devmac/ssh/id_ed25519 -p 2222 ci@127.0.0.1 sw_vers # unverified: the tests use other ports`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDevMac(cmd.Context(), f, cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.root, "root", "", "directory of the Mac, created if it does not exist (required)")
	flags.IntVar(&f.port, "ssh-port", 0, "SSH port on 127.0.0.1 (0: any)")
	flags.StringVar(&f.user, "user", "ci", "account of a new Mac")
	flags.StringVar(&f.passwords, "password-file", "", "file with the account's password (default: a well-known one)")
	flags.StringVar(&f.source, "source", "10.0.0.9", "simulated client address of SSH connections, for the packet filter")
	return cmd
}

func runDevMac(ctx context.Context, f devMacFlags, out io.Writer) error {
	if f.root == "" {
		return errors.New("missing flag --root: a directory for the Mac, such as /tmp/mac")
	}
	source, err := netip.ParseAddr(f.source)
	if err != nil {
		return fmt.Errorf("--source: %w", err)
	}
	root, password, err := f.install()
	if err != nil {
		return err
	}
	mac, err := devmac.Boot(root)
	if err != nil {
		return err
	}
	defer func() { _ = mac.Shutdown() }()
	dir := root.Path("/.devmac/ssh")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	server, err := root.StartSSHD(ctx, dir, f.port, f.user, source)
	if err != nil {
		return err
	}
	defer server.Close()
	fingerprint, err := server.Fingerprint(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `The model of a Mac is running. It is not isolated from this machine.

  directory %s
  log in    ssh -i %s -p %s %s@127.0.0.1
  password  %s
  host key  %s
  pf        %s -sr

Interrupt this to shut it down; the directory is kept.
`, root, server.KeyFile, portOf(server.Address()), f.user, password, fingerprint, root.Path("/sbin/pfctl"))
	<-ctx.Done()
	return mac.Shutdown()
}

func portOf(address string) string { return address[len("127.0.0.1:"):] }

// install creates the Mac, unless the directory has one.
func (f devMacFlags) install() (devmac.Root, string, error) {
	dir, err := filepath.Abs(f.root)
	if err != nil {
		return "", "", err
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	if found, err := devmac.FindRoot(filepath.Join(dir, "etc")); err == nil && string(found) == dir {
		return found, "as set when the Mac was created", nil
	}
	password, err := readSecret("--password-file", f.passwords)
	if err != nil {
		return "", "", err
	}
	shown := "that of --password-file"
	if password == "" {
		password = devmac.DefaultPassword
		shown = password
	}
	self, err := os.Executable()
	if err != nil {
		return "", "", err
	}
	root, err := devmac.Install(dir, devmac.Options{Executable: self, User: f.user, Password: password, Machine: devmac.Machine{LoginMillis: 500}})
	return root, shown, err
}
