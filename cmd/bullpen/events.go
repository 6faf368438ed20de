package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/clusterevents"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// eventsAgain is the delay before a watch that ended or failed is repeated.
const eventsAgain = time.Second

func newEventsCommand() *cobra.Command {
	conn, output, filter := connection(), cli.OutputOf[clusterevents.Event](), clusterevents.Filter{}
	everywhere, follow, since := false, false, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List Kubernetes events of pools, runners and Macs, newest last",
		Long: `List Kubernetes events by Bullpen, about its kinds, and warnings of the runners' namespace. --all adds the rest, such as those of pods that
start; --for lists all events about one object. With -A list all namespaces, without warnings of others. Kubernetes deletes events after an
hour. For changes by people see bullpen audit, for a queued job see bullpen why.

It reads the cluster with your own rights (list and watch on events.events.k8s.io), as kubectl does. With --watch it follows until Ctrl-C.

Exit codes: 0 done, also if there are no events, 1 the cluster cannot be read.`,
		Example: `  bullpen events
  bullpen events --types Warning --since 10m
  bullpen events --all --since 10m
  bullpen events --for pool/linux-4cpu --watch
  bullpen events --for machost/mac-1
  bullpen events --sort-by count -o custom-columns=COUNT:.count,REASON:.reason,ABOUT:.name
  bullpen events -A -o json | jq -r '.[] | select(.type == "Warning") | .message'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if everywhere {
				filter.Namespace = ""
			}
			if since > 0 {
				filter.Since = time.Now().Add(-since)
			}
			config, err := ownCluster(conn)
			if err != nil {
				return err
			}
			if follow {
				config.Timeout = 0 // it would end the watch
			}
			reader, err := clusterevents.NewReader(config)
			if err != nil {
				return err
			}
			if follow {
				return followEvents(cmd, reader, filter, &output)
			}
			events, err := reader.Read(cmd.Context(), filter)
			if err != nil {
				return err
			}
			return cli.EventRows(time.Now()).Print(cmd.OutOrStdout(), &output, events)
		},
	}
	f := cmd.Flags()
	ownClusterFlags(f, conn)
	f.StringVarP(&filter.Namespace, "namespace", "n", "bullpen-runners", "namespace of the events")
	f.BoolVar(&filter.All, "all", false, "also list events that other components report, such as scheduled and started pods")
	f.BoolVarP(&everywhere, "all-namespaces", "A", false, "list events of all namespaces")
	f.StringVar(&filter.For, "for", "", "only events about this object, as kind/name: pool/linux-4cpu, pod/linux-4cpu-x7k2p, machost/mac-1")
	f.StringSliceVar(&filter.Types, "types", nil, "only events of these types: Normal, Warning")
	f.DurationVar(&since, "since", 0, "only events of this period, such as 10m (default: all)")
	commandline.AtLeast(f, &filter.Most, "limit", 0, 500, "maximum number of events to show, the newest; 0 for all")
	f.BoolVarP(&follow, "watch", "w", false, "follow new events until Ctrl-C, one per line")
	listOutput(cmd, &output)
	cmd.MarkFlagsMutuallyExclusive("sort-by", "watch") // a watch prints events as they come
	return cmd
}

func followEvents(cmd *cobra.Command, reader *clusterevents.Reader, filter clusterevents.Filter, output *cli.Output) error {
	out := cmd.OutOrStdout()
	return reader.Follow(cmd.Context(), filter,
		func(e clusterevents.Event) error { return cli.PrintEvent(out, output, e) },
		func(err error) { fmt.Fprintf(cmd.ErrOrStderr(), "%v; retrying\n", err) },
		func() <-chan time.Time { return time.After(eventsAgain) })
}

// ownClusterFlags are those of commands that use the cluster's API, and no server.
func ownClusterFlags(f *pflag.FlagSet, conn *cli.Connection) {
	f.StringVar(&conn.Kubeconfig, "kubeconfig", "", "kubeconfig to authenticate with (default: a bullpen up of this machine, else same as kubectl)")
	f.StringVar(&conn.Context, "context", "", "context of the kubeconfig (default: its current context)")
	f.StringVar(&conn.StateDir, "state-dir", "", "state directory of bullpen up")
	f.DurationVar(&conn.Timeout, "request-timeout", cli.DoctorTimeout, "timeout of one request")
}

// ownCluster is the cluster that the flags name, or the bullpen up of this machine, with the caller's own rights.
func ownCluster(conn *cli.Connection) (*rest.Config, error) {
	site, here, err := conn.Site()
	if err != nil {
		return nil, err
	}
	kubeconfig := conn.Kubeconfig
	if here {
		kubeconfig = site.Kubeconfig
	}
	config, err := conn.Cluster(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Timeout = conn.Timeout
	return config, nil
}
