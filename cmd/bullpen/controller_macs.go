package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/machost"
)

// macBinary is where the image has bullpen for Macs.
const macBinary = "/bullpen-darwin-arm64"

// macFlags are the part of the controller's command line that is about Macs.
type macFlags struct {
	enabled          bool
	binary           string
	secretsNamespace string
	attempts         int
	remoteRoot       string
	dispatchURL      string
}

func (f *macFlags) register(set *pflag.FlagSet) {
	set.BoolVar(&f.enabled, "mac-hosts", false, "prepare the Macs of MacHosts over SSH, and keep them up to date")
	set.StringVar(&f.binary, "mac-binary", macBinary, "this program for darwin/arm64, which is uploaded to Macs")
	set.StringVar(&f.secretsNamespace, "mac-secrets-namespace", "", "namespace of the Secrets of MacHosts (default: --leader-elect-namespace)")
	set.IntVar(&f.attempts, "mac-attempts", 0, "Macs to prepare concurrently (default 4)")
	set.StringVar(&f.dispatchURL, "mac-dispatch-url", "", "base URL of the server for runners on Macs, http:// or https:// (default: --dispatch-url): Macs, also those without a\n"+
		"MacHost, do not use the cluster's DNS")
	set.StringVar(&f.remoteRoot, "mac-remote-root", "", "directory with the files of model Macs")
	_ = set.MarkHidden("mac-remote-root") // fails only for a flag that does not exist
}

// prepare reads the binary once: its digest is part of what is wanted of every Mac. Without --mac-hosts it is nil.
func (f *macFlags) prepare(leaseNamespace string) (*controller.MacOptions, error) {
	if !f.enabled {
		return nil, nil
	}
	digest, err := digestOf(f.binary)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--mac-hosts needs bullpen for Macs: %s not found. Use the image of `make images`, or name the file with --mac-binary (GOOS=darwin GOARCH=arm64 go build)", f.binary)
	}
	if err != nil {
		return nil, fmt.Errorf("reading --mac-binary %s: %w", f.binary, err)
	}
	namespace := f.secretsNamespace
	if namespace == "" {
		namespace = leaseNamespace
	}
	return &controller.MacOptions{
		Bootstrapper: machost.SSH{Binary: f.binary, RemoteRoot: f.remoteRoot}, BinarySHA256: digest, SecretsNamespace: namespace, Attempts: f.attempts,
	}, nil
}

// dispatch is --mac-dispatch-url, if it is one that the poller of a runner accepts.
func (f *macFlags) dispatch() (string, error) {
	if f.dispatchURL == "" {
		return "", nil
	}
	at, err := url.Parse(f.dispatchURL)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
		return "", errors.New("--mac-dispatch-url must be http://HOST or https://HOST, without a user, a query and a fragment") // not repeated: it may have a password
	}
	return f.dispatchURL, nil
}

func digestOf(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the administrator names it
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
