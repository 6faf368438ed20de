package main

import (
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
		Short:   "Show the log of a runner, or the last lines of one that died",
		Long: `Shows the log of a runner whose pod is there, as kubectl logs would, with your own rights in the cluster (get on pods/log).

When the pod has gone and its runner had died (it ended with another exit code than 0, was killed, or never started), the last 200 lines
of its log are kept for a week; of those that ended well nothing is. They are what the job printed, too: to read them needs the right get
on runnerlogs.bullpen.dev (the role bullpen-operator).

It exits with 0 when there was something to show, and with 1 otherwise.`,
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
			if there || err != nil {
				return err
			}
			client, err := conn.Client()
			if err != nil {
				return err
			}
			log, err := client.RunnerLog(cmd.Context(), q.Namespace, q.Pod)
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
	f.StringVarP(&q.Container, "container", "c", runnerpod.ContainerRunner, "container of its pod")
	f.BoolVarP(&q.Follow, "follow", "f", false, "go on until it ends")
	f.Int64Var(&q.Lines, "tail", -1, "show the last so many lines; all by default")
	return cmd
}
