//go:build !production

package main

import (
	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
)

func newImagesCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "images",
		Short: "Load and list the images of `bullpen up --containers`",
		Long: `Load and list the container images of ` + "`bullpen up --containers`" + ` on this machine. It has to run, and both commands need root.

Images are kept in the state directory until ` + "`bullpen down --delete`" + `.`,
	}
	load := &cobra.Command{
		Use:   "load FILE",
		Short: "Load container images from a file",
		Long: `Load container images from a file, so that no registry is asked for them. The file is what "docker save" writes, or an archive of OCI images; it
may be compressed with gzip. Pods name an image as it is named in the file.`,
		Example: `  docker save registry.example.com/runner:1 -o runner.tar   # unverified: it needs Docker
  sudo bullpen images load runner.tar`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, err := stateDir(dir)
			if err != nil {
				return err
			}
			return onebox.LoadImages(cmd.Context(), folder, args[0], cmd.OutOrStdout())
		},
	}
	list := &cobra.Command{
		Use:     "list",
		Short:   "List container images",
		Example: `  sudo bullpen images list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := stateDir(dir)
			if err != nil {
				return err
			}
			return onebox.ListImages(cmd.Context(), folder, cmd.OutOrStdout())
		},
	}
	cmd.PersistentFlags().StringVar(&dir, "state-dir", "", "state directory (default: that of bullpen up)")
	cmd.AddCommand(load, list)
	return cmd
}
