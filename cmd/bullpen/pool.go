package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

func newPoolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Show, resize, pause, drain and resume pools (busy runners are not affected)",
		Long: `Show pools, change their size, and stop and start the dispatch of jobs to them. Runners that have a job finish it in any case.

pause, drain and resume set spec.intake of the RunnerPool with your own rights in the cluster (get and patch on runnerpools.bullpen.dev), as kubectl does,
and annotations with the user, the time and the reason, which bullpen pools and bullpen why show. bullpen audit records every change of the spec.
A GitOps tool that sets spec.intake itself reverts the change; one that does not set it keeps it.`,
		Example: "  bullpen pool pause linux --reason 'the registry is down'\n  bullpen pool drain linux\n  bullpen pool resume linux\n" +
			"  bullpen pool get linux-4cpu\n  bullpen pool set linux-4cpu --min-idle 3 --max-replicas 40\n  bullpen pool scale linux-4cpu --replicas 10",
	}
	list := newPoolListCommand("list", "  bullpen pool list", "")
	list.Aliases = []string{"ls"}
	cmd.AddCommand(
		list, newPoolGetCommand(), newPoolSetCommand(), newPoolScaleCommand(),
		newPoolIntakeCommand("pause", v1alpha1.IntakePaused, "Stop dispatching jobs, and keep idle runners",
			"Jobs stay queued, and idle runners stay until the pool is resumed."),
		newPoolIntakeCommand("drain", v1alpha1.IntakeDrained, "Stop dispatching jobs, and remove idle runners",
			"Jobs stay queued. Idle runners are removed, busy ones after their job."),
		newPoolIntakeCommand("resume", v1alpha1.IntakeOpen, "Dispatch jobs again",
			"Queued jobs are dispatched, oldest first."),
	)
	return cmd
}

func newPoolIntakeCommand(verb string, intake v1alpha1.Intake, short, long string) *cobra.Command {
	conn, format, change := connection(), cli.FormatTable, cli.IntakeChange{Intake: intake}
	cmd := &cobra.Command{
		Use:   verb + " POOL",
		Short: short,
		Long: long + ` Repeating the command changes nothing.

Exit codes: 0 the pool is in this state, 1 it failed.`,
		Example: "  bullpen pool " + verb + " linux\n  bullpen pool " + verb + " linux -n bullpen-runners -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := ownCluster(conn)
			if err != nil {
				return err
			}
			change.Pool, change.At = args[0], time.Now()
			changed, err := cli.SetIntake(cmd.Context(), config, change)
			if err != nil {
				return err
			}
			if already := changed.Already(); already != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s; nothing was changed.\n", already)
			}
			return cli.Print(cmd.OutOrStdout(), format, changed, cli.IntakeTable(changed))
		},
	}
	f := cmd.Flags()
	ownClusterFlags(f, conn)
	if intake != v1alpha1.IntakeOpen {
		f.StringVar(&change.Reason, "reason", "", "reason, shown with the pool")
	}
	f.StringVarP(&change.Namespace, "namespace", "n", "bullpen-runners", "namespace of the pool")
	cli.OutputFlag(f, &format)
	return cmd
}
