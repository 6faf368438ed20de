package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/servers"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show and change the configuration file with named servers",
		Long: `Show and change the configuration file of administrators' commands: servers by name, and the current one. --server takes a name of this file.

Commands use the first of these:

  --server            a name in this file, or a URL
  --state-dir         a bullpen up of this machine
  BULLPEN_SERVER      a name in this file, or a URL
  --kubeconfig, --context or --system-namespace
                      a port-forward to the release in that cluster
  the current server  of this file
  bullpen up          of this machine: the one whose kubeconfig KUBECONFIG names, else that of the default state directory
  the kubeconfig      a port-forward to the release in its current cluster

The file is BULLPEN_CONFIG, else $XDG_CONFIG_HOME/bullpen/config.yaml, else ~/.config/bullpen/config.yaml. It has no secrets.`,
		Example: "  bullpen config set-server production --context prod\n  bullpen config use-server production\n  bullpen status --server production",
	}
	cmd.AddCommand(newConfigGetCommand(), newConfigUseCommand(), newConfigSetCommand(), newConfigDeleteCommand(), newConfigViewCommand())
	return cmd
}

// configFile reads the configuration file, and returns where it is.
func configFile() (servers.File, string, error) {
	path, err := servers.Path(os.Getenv)
	if err != nil {
		return servers.File{}, "", err
	}
	file, err := servers.Load(path)
	return file, path, err
}

func newConfigGetCommand() *cobra.Command {
	format := cli.FormatTable
	cmd := &cobra.Command{
		Use:     "get-servers",
		Short:   "List the servers of the configuration file",
		Example: "  bullpen config get-servers\n  bullpen config get-servers -o json | jq -r '.[].name'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, path, err := configFile()
			if err != nil {
				return err
			}
			list := cli.ServersOf(file)
			return cli.Print(cmd.OutOrStdout(), format, list, cli.ServerTable(list, path))
		},
	}
	cli.OutputFlag(cmd.Flags(), &format)
	return cmd
}

func newConfigUseCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "use-server SERVER",
		Short:   "Set the server that commands use by default",
		Example: "  bullpen config use-server production",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, path, err := configFile()
			if err != nil {
				return err
			}
			if _, err := file.Find(args[0], path); err != nil {
				return err
			}
			file.Current = args[0]
			if err := servers.Save(path, file); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is the current server.\n", args[0])
			return err
		},
	}
}

func newConfigSetCommand() *cobra.Command {
	var given servers.Server
	cmd := &cobra.Command{
		Use:   "set-server SERVER",
		Short: "Add a server to the configuration file, or change it",
		Long: `Add a server to the configuration file, or change the fields that are given; an empty value removes a field. Without --url and --state-dir,
commands forward a port to the release in the cluster of --kubeconfig and --context.

The whole file is rewritten: its comments are lost.`,
		Example: `  bullpen config set-server production --context prod
  bullpen config set-server production --url https://bullpen.example.com --ca-file ca.crt
  bullpen config set-server lab --kubeconfig lab.kubeconfig --system-namespace team-b
  bullpen config set-server here --state-dir /var/lib/bullpen/onebox`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := servers.CheckName(name); err != nil {
				return err
			}
			file, path, err := configFile()
			if err != nil {
				return err
			}
			before, there := file.Servers[name]
			changed, err := changeServer(before, given, cmd.Flags())
			if err != nil {
				return err
			}
			if err := servers.Save(path, file.With(name, changed)); err != nil {
				return err
			}
			text := fmt.Sprintf("Server %s changed.", name)
			if !there {
				text = fmt.Sprintf("Server %s added.", name)
			}
			if file.Current == "" {
				text += fmt.Sprintf(" `%s config use-server %s` makes it the current one.", cmd.Root().DisplayName(), name)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&given.URL, "url", "", "URL of the administrators' API")
	f.StringVar(&given.CAFile, "ca-file", "", "certificates (PEM) that the server's is checked with (default: the system's)")
	f.StringVar(&given.Kubeconfig, "kubeconfig", "", "kubeconfig to authenticate with (default: same as kubectl)")
	f.StringVar(&given.Context, "context", "", "context of the kubeconfig (default: its current context)")
	f.StringVar(&given.Namespace, "system-namespace", "", "namespace of the server and the controller (default: that of the only release; also --namespace)")
	f.StringVar(&given.StateDir, "state-dir", "", "state directory of bullpen up")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "namespace" { // the former name
			name = "system-namespace"
		}
		return pflag.NormalizedName(name)
	})
	return cmd
}

// changeServer is a server with the fields that flags give. Paths become absolute: the file is used in every directory.
func changeServer(server, given servers.Server, flags *pflag.FlagSet) (servers.Server, error) {
	given, err := absolute(given)
	if err != nil {
		return server, err
	}
	for name, field := range map[string]struct{ to, from *string }{
		"url": {&server.URL, &given.URL}, "ca-file": {&server.CAFile, &given.CAFile}, "kubeconfig": {&server.Kubeconfig, &given.Kubeconfig},
		"context": {&server.Context, &given.Context}, "system-namespace": {&server.Namespace, &given.Namespace}, "state-dir": {&server.StateDir, &given.StateDir},
	} {
		if flags.Changed(name) {
			*field.to = *field.from
		}
	}
	return server, server.Check()
}

func absolute(server servers.Server) (servers.Server, error) {
	var errs []error
	for _, path := range []*string{&server.CAFile, &server.Kubeconfig, &server.StateDir} {
		if *path == "" {
			continue
		}
		whole, err := filepath.Abs(*path)
		*path, errs = whole, append(errs, err)
	}
	return server, errors.Join(errs...)
}

func newConfigDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "delete-server SERVER",
		Short:   "Remove a server from the configuration file",
		Long:    "Remove a server from the configuration file. The server itself is not affected.",
		Example: "  bullpen config delete-server lab",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, path, err := configFile()
			if err != nil {
				return err
			}
			if _, err := file.Find(args[0], path); err != nil {
				return err
			}
			if err := servers.Save(path, file.Without(args[0])); err != nil {
				return err
			}
			text := "Server " + args[0] + " removed."
			if file.Current == args[0] {
				text += " No server is the current one now."
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
}

func newConfigViewCommand() *cobra.Command {
	format := cli.FormatTable
	cmd := &cobra.Command{
		Use:     "view",
		Short:   "Print the configuration file",
		Long:    "Print the content of the configuration file, after checking it, and its path on standard error.",
		Example: "  bullpen config view\n  bullpen config view -o json | jq -r .current",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, path, err := configFile()
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "# "+path)
			if format == cli.FormatJSON {
				return cli.Print(cmd.OutOrStdout(), format, file, cli.Table{})
			}
			text, err := servers.Format(file)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cli.OutputFlag(cmd.Flags(), &format)
	return cmd
}

// serverNames completes names of the configuration file.
func serverNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	file, _, err := configFile()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, name := range file.Names() {
		server := file.Servers[name]
		names = append(names, cobra.CompletionWithDesc(name, cmp.Or(server.URL, server.StateDir, server.Context)))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
