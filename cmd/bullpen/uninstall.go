package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/portforward"
	"github.com/bullpen-ci/bullpen/internal/cli/uninstall"
)

// uninstallConfig is the command line of bullpen uninstall.
type uninstallConfig struct {
	conn    *cli.Connection
	format  cli.Format
	yes     bool
	timeout time.Duration
	options uninstall.Options
}

func newUninstallCommand() *cobra.Command {
	cfg := uninstallConfig{conn: connection()}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Delete all pools and runners, also without a controller",
		Long: `Delete every RunnerPool and every owner of self-registering runners in one namespace, and wait until they no longer exist. Busy runners
finish their jobs first; the command names them. Run it before you uninstall the rest, or afterwards if objects stay Terminating.

While a controller runs, it removes runners and finalizers, and this command waits. Without a controller, this command asks the server about
each idle runner, deletes those that the server approves, and removes a pool's finalizer after its last runner. If the server no longer exists
either, use --without-server: idle runners are then deleted with their grace period. Self-registering runners need a controller, which
unregisters them at GitHub.

A controller is recognized by its Lease in --system-namespace. Stop a controller with --leader-elect=false first.

It uses your own rights in the cluster. Exit codes: 0 everything is deleted, 1 something is left, which it lists. Running it again continues.`,
		Example: `  bullpen uninstall
  bullpen uninstall --context production --timeout 6h --yes
  bullpen uninstall --without-server --yes -o json`,
		Args: cobra.NoArgs,
		RunE: cfg.run,
	}
	f := cmd.Flags()
	cfg.conn.Flags(f)
	cli.OutputFlag(f, &cfg.format)
	f.BoolVar(&cfg.yes, "yes", false, "do not ask for confirmation")
	f.DurationVar(&cfg.timeout, "timeout", 0, "how long to wait for busy runners (default: no limit)")
	f.StringVar(&cfg.options.Namespace, "runner-namespace", "bullpen-runners", "namespace of runner pods and pools")
	f.BoolVar(&cfg.options.WithoutServer, "without-server", false, "the server no longer exists: delete idle runners without asking it")
	return cmd
}

func (cfg *uninstallConfig) run(cmd *cobra.Command, _ []string) error {
	_, here, err := cfg.conn.Site()
	if err != nil {
		return err
	}
	if here {
		return errors.New("`bullpen up` runs on this machine; `bullpen down --delete` deletes it. For a cluster use --kubeconfig or --context")
	}
	config, err := cfg.conn.Cluster(cfg.conn.Kubeconfig)
	if err != nil {
		return err
	}
	config.Timeout = cfg.conn.Timeout
	options := cfg.options
	options.Out, options.SystemAssumed = cmd.ErrOrStderr(), cfg.conn.SystemNamespace == ""
	options.SystemNamespace = cmp.Or(cfg.conn.SystemNamespace, portforward.DefaultNamespace)
	if !options.WithoutServer {
		client, err := cfg.conn.Client()
		switch {
		case err == nil:
			options.Server = client
		case cfg.conn.Server != "":
			return err
		}
	}
	if !cfg.yes {
		question := fmt.Sprintf("Delete all pools and runners in the namespace %s of %s?", options.Namespace, config.Host)
		if agreed, err := askYes(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr(), question); err != nil || !agreed {
			return errors.Join(err, errors.New("nothing was deleted. Confirm with y, or use --yes"))
		}
	}
	ctx := cmd.Context()
	if cfg.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.timeout)
		defer cancel()
	}
	report, err := uninstall.Run(ctx, config, options)
	if errors.Is(err, context.DeadlineExceeded) && cmd.Context().Err() == nil {
		err = fmt.Errorf("not finished within --timeout %s: %d objects are left. Run the command again to continue", cfg.timeout, len(report.Left))
	}
	if printed := cli.Print(cmd.OutOrStdout(), cfg.format, report, report.Table()); printed != nil {
		return printed
	}
	return err
}
