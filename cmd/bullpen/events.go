package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/clusterevents"
)

// eventsAgain is how soon a cluster that has ended a watch, or could not be asked, is asked again.
const eventsAgain = time.Second

func newEventsCommand() *cobra.Command {
	conn, format, filter := connection(), cli.FormatTable, clusterevents.Filter{}
	all, follow, since := false, false, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what happened to pools, runners and Macs, the latest last",
		Long: `Shows Kubernetes' Events of the runners' namespace: what the fleet's parts did, and what the cluster said about its pods. With -A those of all
namespaces, of which only what the fleet's parts wrote, or what is about its kinds. Kubernetes forgets Events after an hour; what people
changed is kept by bullpen audit, and why one job waits is said by bullpen why.

It asks the cluster with your own rights (list and watch on events.events.k8s.io), as kubectl would. With --watch it goes on until Ctrl-C.

It exits with 0, also when there is none, and with 1 when the cluster could not be asked.`,
		Example: `  bullpen events
  bullpen events --types Warning --since 10m
  bullpen events --for pool/linux-4 --watch
  bullpen events --for machost/mac-1
  bullpen events -A -o json | jq -r '.[] | select(.type == "Warning") | .message'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.Most < 0 {
				return errors.New("--limit is a number of events, or 0 for all")
			}
			if all {
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
				return followEvents(cmd, reader, filter, format)
			}
			events, err := reader.Read(cmd.Context(), filter)
			if err != nil {
				return err
			}
			return cli.Print(cmd.OutOrStdout(), format, events, cli.EventTable(events, time.Now()))
		},
	}
	f := cmd.Flags()
	ownClusterFlags(f, conn)
	f.StringVarP(&filter.Namespace, "namespace", "n", "bullpen-runners", "namespace to look in")
	f.BoolVarP(&all, "all-namespaces", "A", false, "look in all namespaces")
	f.StringVar(&filter.For, "for", "", "only about this: kind/name, like pool/linux-4, pod/linux-4-x7k2p, machost/mac-1")
	f.StringSliceVar(&filter.Types, "types", nil, "only of these types: Normal, Warning")
	f.DurationVar(&since, "since", 0, "only what happened within this time, like 10m (default: all there are)")
	f.IntVar(&filter.Most, "limit", 500, "most events to show, the latest; 0 for all")
	f.BoolVarP(&follow, "watch", "w", false, "go on, a line for each, until Ctrl-C")
	cli.OutputFlag(f, &format)
	return cmd
}

func followEvents(cmd *cobra.Command, reader *clusterevents.Reader, filter clusterevents.Filter, format cli.Format) error {
	out := cmd.OutOrStdout()
	return reader.Follow(cmd.Context(), filter,
		func(e clusterevents.Event) error { return cli.PrintEvent(out, format, e) },
		func(err error) { fmt.Fprintf(cmd.ErrOrStderr(), "%v; trying again\n", err) },
		func() <-chan time.Time { return time.After(eventsAgain) })
}

// ownClusterFlags are those of commands that ask the cluster itself, and no server.
func ownClusterFlags(f *pflag.FlagSet, conn *cli.Connection) {
	f.StringVar(&conn.Kubeconfig, "kubeconfig", "", "kubeconfig file whose user you are (default: a bullpen up of this machine, else as kubectl)")
	f.StringVar(&conn.Context, "context", "", "context of the kubeconfig (default: its current one)")
	f.StringVar(&conn.StateDir, "state-dir", "", "state folder of bullpen up")
	f.DurationVar(&conn.Timeout, "request-timeout", cli.DoctorTimeout, "how long to wait for an answer")
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
