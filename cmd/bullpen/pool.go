package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

func newPoolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Pause, drain and resume pools; runners that work go on",
		Long: `Has a pool hand out jobs or not. Runners that work, or were chosen for a job, finish it whatever is asked here.

It writes spec.intake of the RunnerPool with your own rights in the cluster (get and patch on runnerpools.bullpen.dev), as kubectl would,
and notes beside it who has done so, when and why: bullpen pools and bullpen why say it. What counts as proof is the cluster's audit log.
A tool that sets spec.intake itself puts it back at its next turn; one that does not mention it leaves it alone.`,
		Example: "  bullpen pool pause linux --reason 'the registry is down'\n  bullpen pool drain linux\n  bullpen pool resume linux",
	}
	cmd.AddCommand(
		newPoolIntakeCommand("pause", v1alpha1.IntakePaused, "Hand out no jobs, and keep the runners",
			"Jobs wait, and idle runners stay for when the pool is resumed."),
		newPoolIntakeCommand("drain", v1alpha1.IntakeDrained, "Hand out no jobs, and let idle runners go",
			"Jobs wait. Idle runners leave through the same fence as any other; those that work leave when their jobs end."),
		newPoolIntakeCommand("resume", v1alpha1.IntakeOpen, "Hand out jobs again",
			"Jobs that waited are handed out, the oldest first."),
	)
	return cmd
}

func newPoolIntakeCommand(verb string, intake v1alpha1.Intake, short, long string) *cobra.Command {
	conn, format, change := connection(), cli.FormatTable, cli.IntakeChange{Intake: intake}
	cmd := &cobra.Command{
		Use:   verb + " POOL",
		Short: short,
		Long: long + ` To ask for what is so already changes nothing.

It exits with 0 when it is so, and with 1 when it could not be done.`,
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
			return cli.Print(cmd.OutOrStdout(), format, changed, cli.IntakeTable(changed))
		},
	}
	f := cmd.Flags()
	ownClusterFlags(f, conn)
	if intake != v1alpha1.IntakeOpen {
		f.StringVar(&change.Reason, "reason", "", "why, for whoever sees the pool")
	}
	f.StringVarP(&change.Namespace, "namespace", "n", "bullpen-runners", "namespace of the pool")
	cli.OutputFlag(f, &format)
	return cmd
}
