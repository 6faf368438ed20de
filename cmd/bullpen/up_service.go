//go:build !production

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
)

// secondSignal is closed when the user asks again to stop, after the signal that ended ctx. What waits for it ends with the process.
func secondSignal(ctx context.Context) <-chan struct{} {
	again := make(chan os.Signal, 1)
	now := make(chan struct{})
	go func() {
		<-ctx.Done() // the command's end, at the latest
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		<-again
		close(now)
	}()
	return now
}

// pathFlags of `bullpen up` name files and directories. A service has another working directory.
var pathFlags = []string{"state-dir", "assets", "pool-file", "mac-hosts", "workflow", "github-private-key-file", "webhook-secret-file", "audit-log"}

// installService writes the unit of this command line.
func installService(cmd *cobra.Command, opts onebox.UpOptions) error {
	if os.Getenv(envDatabaseURL) != "" {
		return fmt.Errorf("a unit must not contain the password of $%s. Write the variable to %s (mode 0600), and unset it here", envDatabaseURL, onebox.ServiceEnvironment)
	}
	args, err := serviceArgs(cmd.Flags(), opts.StateDir)
	if err != nil {
		return err
	}
	if err := opts.Check(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this executable: %w", err)
	}
	text, err := onebox.InstallService(onebox.Service{Binary: self, Args: args, Environ: os.Environ(), Containers: opts.Containers})
	if err != nil {
		return err
	}
	fmt.Fprint(cmd.OutOrStdout(), text)
	return nil
}

// serviceArgs are the flags that were set, with absolute paths, and --drain.
func serviceArgs(flags *pflag.FlagSet, stateDir string) ([]string, error) {
	args := []string{"up", "--drain", "--state-dir=" + stateDir}
	var errs []error
	flags.Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "install-service", "drain", "state-dir":
			return
		case "exit-when-done", "workflow":
			errs = append(errs, fmt.Errorf("--%s is for one run, and --install-service for a service. Leave one of them out", flag.Name))
			return
		}
		value := flag.Value.String()
		if slices.Contains(pathFlags, flag.Name) {
			absolute, err := filepath.Abs(value)
			errs = append(errs, err)
			value = absolute
		}
		args = append(args, "--"+flag.Name+"="+value)
	})
	return args, errors.Join(errs...)
}
