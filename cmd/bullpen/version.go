package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

func newVersionCommand() *cobra.Command {
	conn, format, clientOnly := connection(), cli.FormatTable, false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program and of the server",
		Long: `Print the version of this program and of the server. The server is the one that the other commands use.

Exit codes: 0 done, also if no server is configured, 1 the server cannot be reached.`,
		Example: "  bullpen version\n  bullpen version --client\n  bullpen version -o json | jq -r .server",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report := cli.VersionReport{Client: version, Platform: runtime.GOOS + "/" + runtime.GOARCH}
			var failure error
			if !clientOnly {
				report.Server, failure = serverVersion(cmd, conn)
				if cli.IsNoServer(failure) {
					report.Problem, failure = "none found", nil
				} else if failure != nil {
					report.Problem = failure.Error()
				}
			}
			if err := cli.Print(cmd.OutOrStdout(), format, report, report.Table(clientOnly)); err != nil {
				return err
			}
			if failure != nil {
				return fmt.Errorf("reading the server's version: %w", failure)
			}
			return nil
		},
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	cmd.Flags().BoolVar(&clientOnly, "client", false, "print the version of this program only")
	return cmd
}

func serverVersion(cmd *cobra.Command, conn *cli.Connection) (string, error) {
	client, err := conn.Client()
	if err != nil {
		return "", err
	}
	return client.ServerVersion(cmd.Context())
}
