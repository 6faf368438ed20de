package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
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
		Short: "Remove all pools and runners, also where no controller is left to do it",
		Long: `Deletes every RunnerPool, and every owner of runners that register themselves, of one namespace, and waits until all are gone. Busy
runners finish their jobs first; the command names them. Run it before you delete the rest with whatever installed it, or afterwards, if
objects stay Terminating.

While a controller runs, it removes runners and finalizers, and this command waits. Where none runs, this command asks the server about each
idle runner, removes those that it grants, and takes off the finalizer of a pool when no runner is left. Where the server is gone, too, say
so with --without-server: idle runners are then deleted with their grace period. Runners that register themselves need a controller, which
unregisters them at GitHub.

A controller is known by its Lease in --system-namespace; one that runs with --leader-elect=false must be stopped first.

It uses your own rights in the cluster. Exit codes: 0 nothing is left, 1 something is, which it names. Running it again continues.`,
		Example: `  bullpen uninstall
  bullpen uninstall --server http://127.0.0.1:8082 --timeout 6h --yes
  bullpen uninstall --without-server --yes -o json`,
		Args: cobra.NoArgs,
		RunE: cfg.run,
	}
	f := cmd.Flags()
	cfg.conn.Flags(f)
	cli.OutputFlag(f, &cfg.format)
	f.BoolVar(&cfg.yes, "yes", false, "do not ask")
	f.DurationVar(&cfg.timeout, "timeout", 0, "how long to wait for busy runners (default: until they have finished)")
	f.StringVar(&cfg.options.Namespace, "runner-namespace", "bullpen-runners", "namespace of runner pods and pools")
	f.StringVar(&cfg.options.SystemNamespace, "system-namespace", "bullpen-system", "namespace of the server and the controller")
	f.BoolVar(&cfg.options.WithoutServer, "without-server", false, "no server runs any more: delete idle runners without asking it")
	return cmd
}

func (cfg *uninstallConfig) run(cmd *cobra.Command, _ []string) error {
	_, here, err := cfg.conn.Site()
	if err != nil {
		return err
	}
	if here {
		return errors.New("a bullpen up of this machine was found, which `bullpen down --delete` ends: name a cluster with --kubeconfig or --context")
	}
	config, err := cfg.conn.Cluster(cfg.conn.Kubeconfig)
	if err != nil {
		return err
	}
	config.Timeout = cfg.conn.Timeout
	options := cfg.options
	options.Out, options.SystemAssumed = cmd.ErrOrStderr(), !cmd.Flags().Changed("system-namespace")
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
			return errors.Join(err, errors.New("nothing was deleted: answer y, or say --yes"))
		}
	}
	ctx := cmd.Context()
	if cfg.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.timeout)
		defer cancel()
	}
	report, err := uninstall.Run(ctx, config, options)
	if printed := cli.Print(cmd.OutOrStdout(), cfg.format, report, report.Table()); printed != nil {
		return printed
	}
	return err
}
