package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

func newRunnersLogsCommand() *cobra.Command {
	conn, q := connection(), cli.LogQuery{}
	cmd := &cobra.Command{
		Use:     "logs POD",
		Aliases: []string{"log"},
		Short:   "Show the log of a runner, or the last lines of a failed one",
		Long: `Show the log of a runner whose pod exists, as kubectl logs does, with your own rights in the cluster (get on pods/log).
Without that right, only kept lines are shown.

The last 200 log lines of a failed runner (exit code other than 0, killed, or never started) are kept for 7 days after its pod is deleted.
They can contain output of the job, so they need the right get on runnerlogs.bullpen.dev (the role bullpen-admin).

Exit codes: 0 a log was shown, 1 there is none, or it cannot be read.`,
		Example: "  bullpen runners logs linux-x7k2m9qa\n  bullpen runners logs linux-x7k2m9qa --follow --tail 20",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Pod = args[0]
			site, here, err := conn.Site()
			if err != nil {
				return err
			}
			kubeconfig := conn.Kubeconfig
			if here {
				kubeconfig = site.Kubeconfig
			}
			config, err := conn.Cluster(kubeconfig)
			if err != nil {
				return err
			}
			there, err := cli.LiveLog(cmd.Context(), config, q, cmd.OutOrStdout())
			forbidden, mayNot := errors.AsType[*cli.ForbiddenLogError](err)
			if there || err != nil && !mayNot {
				return err
			}
			client, err := conn.Client()
			if err != nil {
				return err
			}
			log, err := client.RunnerLog(cmd.Context(), q.Namespace, q.Pod)
			if mayNot && err != nil { // perhaps the pod exists: the first refusal says what to do
				return forbidden
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), cli.LogHeadline(log))
			fmt.Fprintln(cmd.OutOrStdout(), log.Tail)
			return nil
		},
	}
	conn.Flags(cmd.Flags())
	f := cmd.Flags()
	f.StringVarP(&q.Namespace, "namespace", "n", "bullpen-runners", "namespace of the runner")
	f.StringVarP(&q.Container, "container", "c", runnerpod.ContainerRunner, "container of the pod")
	f.BoolVarP(&q.Follow, "follow", "f", false, "follow the log until the container exits")
	f.Int64Var(&q.Lines, "tail", -1, "number of last lines to show (default: all)")
	return cmd
}
