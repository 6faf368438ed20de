package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/term"

	"github.com/bullpen-ci/bullpen/internal/machost/remote"
)

// hostLogin says which user logs in to a host, and how the host is verified.
type hostLogin struct {
	user, identity      string
	hostKey, knownHosts string
	trustFirst          bool
}

func (l *hostLogin) add(flags *pflag.FlagSet) {
	flags.StringVar(&l.user, "user", "", "user to log in as (default: the configuration's user)")
	flags.StringVar(&l.identity, "identity", "", "private key to log in with (default: the keys of your ssh-agent)")
	flags.StringVar(&l.hostKey, "host-key", "", "fingerprint of the host key, SHA256:…; no other is accepted")
	flags.StringVar(&l.knownHosts, "known-hosts", "", "known hosts file (default: ~/.ssh/known_hosts)")
	flags.BoolVar(&l.trustFirst, "trust-first", false, "accept and store the key of an unknown host")
}

// target is what the flags say. The function ends the connection to the agent.
func (l *hostLogin) target(cmd *cobra.Command, address string, terminal bool) (remote.Target, func(), error) {
	t := remote.Target{Address: address, User: l.user, HostKey: l.hostKey}
	if l.hostKey == "" {
		t.KnownHosts = l.knownHosts
		if t.KnownHosts == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return t, nil, fmt.Errorf("finding the known hosts: %w. Use --known-hosts", err)
			}
			t.KnownHosts = filepath.Join(home, ".ssh", "known_hosts")
		}
		if l.trustFirst || terminal && term.IsTerminal(int(os.Stdin.Fd())) {
			t.Trust = l.trust(cmd, t.KnownHosts)
		}
	}
	if l.identity != "" {
		key, err := readIdentity(cmd, l.identity)
		t.Key = key
		return t, func() {}, err
	}
	socket := os.Getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return t, nil, errors.New("no key to log in with. Use --identity, or start an ssh-agent and add a key (ssh-add)")
	}
	conn, err := (&net.Dialer{}).DialContext(cmd.Context(), "unix", socket)
	if err != nil {
		return t, nil, fmt.Errorf("connecting to the ssh-agent: %w. Use --identity for a key file", err)
	}
	t.Signers = agent.NewClient(conn).Signers
	return t, func() { conn.Close() }, nil
}

// trust asks, unless the first key is to be trusted, and stores the accepted key.
func (l *hostLogin) trust(cmd *cobra.Command, file string) func(string, ssh.PublicKey) error {
	return func(address string, key ssh.PublicKey) error {
		fingerprint := ssh.FingerprintSHA256(key)
		out := cmd.ErrOrStderr()
		if !l.trustFirst {
			fmt.Fprintf(out, "unknown host %s. Its %s key is %s\n", address, key.Type(), fingerprint)
			yes, err := askYes(cmd.Context(), cmd.InOrStdin(), out, "Compare it with the host's (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub). Is it the same?")
			if err != nil {
				return err
			}
			if !yes {
				return &remote.HostKeyError{Address: address, Got: []string{fingerprint}}
			}
		}
		if err := remote.AddKnownHost(file, address, key); err != nil {
			return err
		}
		fmt.Fprintf(out, "stored in %s: %s has the key %s\n", file, address, fingerprint)
		return nil
	}
}

func readIdentity(cmd *cobra.Command, path string) (ssh.Signer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the key to log in with: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		signer, err = unlock(cmd.Context(), cmd, path, text)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the key %s: %w", path, err)
	}
	return signer, nil
}

func unlock(ctx context.Context, cmd *cobra.Command, path string, text []byte) (ssh.Signer, error) {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, errors.New("it has a passphrase, and there is no terminal to read it from. Add the key to an ssh-agent (ssh-add)")
	}
	passphrase, err := askSecret(ctx, cmd.ErrOrStderr(), "Passphrase of "+path+": ")
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKeyWithPassphrase(text, passphrase)
}
