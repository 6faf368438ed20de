package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

func newHostCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Prepare a Mac as a host of the fleet, and show its state",
	}
	cmd.AddCommand(newHostApplyCommand(), newHostBootstrapCommand(), newHostStatusCommand(), newHostPrepareCommand(), newHostGrantSudoCommand(), newHostRevertGuardCommand())
	return cmd
}

// hostRoot is the root of the host's files: this machine's, or a model of a Mac below a directory.
type hostRoot struct{ dir string }

func (r *hostRoot) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.dir, "root", "", "use the model of a Mac in this directory")
	cobra.CheckErr(cmd.Flags().MarkHidden("root"))
}

// open refuses early what would fail in the middle.
func (r *hostRoot) open(changes bool) (machost.Local, error) {
	switch {
	case r.dir != "":
	case runtime.GOOS != "darwin":
		return machost.Local{}, fmt.Errorf("not a Mac (%s). Run this on the Mac, or use `bullpen host bootstrap ADDRESS` from here", runtime.GOOS)
	case changes && os.Geteuid() != 0:
		return machost.Local{}, errors.New("preparing a Mac needs root. Use sudo")
	}
	return machost.Local{Root: r.dir}, nil
}

// ownDigest is the SHA-256 of the running program, and its path.
func ownDigest() (path, digest string, err error) {
	if path, err = os.Executable(); err != nil {
		return "", "", fmt.Errorf("finding the running program: %w", err)
	}
	digest, err = fileSHA256(path)
	return path, digest, err
}

func readHostConfig(path string) (machost.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return machost.Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	config, err := machost.ParseConfig(text)
	if err != nil {
		return config, fmt.Errorf("%s: %w", path, err)
	}
	if err := config.Validate(); err != nil {
		return config, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}
