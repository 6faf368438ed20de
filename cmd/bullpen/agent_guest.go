package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/agent"
	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
)

// newAgentGuestCommand is what the node agent of a Mac starts inside a virtual machine.
func newAgentGuestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guest",
		Short: "Run the container's command inside a virtual machine, once, and report how it ended",
		Long: `Runs inside a virtual machine what guest.json of the read-only share "bullpen" says, once in the machine's life, and writes log, heartbeat and
exit report into the share "status". It goes into the background and returns when its heartbeat is there; starting it again changes nothing.

The node agent starts it through Tart's guest agent. An image without that may start it by a LaunchAgent of the user who logs in, with
--foreground (docs/guides/macos.md).`,
		Example: `  "/Volumes/My Shared Files/bullpen/bullpen" agent guest
  "/Volumes/My Shared Files/bullpen/bullpen" agent guest --foreground`,
		Args: cobra.NoArgs,
	}
	options := guestFlags(cmd)
	foreground := cmd.Flags().Bool("foreground", false, "stay until the command has ended")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		opts := options()
		if !*foreground {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding this binary: %w", err)
			}
			return agent.DetachGuest(cmd.Context(), opts, []string{self, "agent", "guest", "--foreground", "--shares", opts.Shares})
		}
		opts.Log = agentLog()
		if err := agent.Guest(cmd.Context(), opts); !errors.Is(err, agent.ErrGuestBegun) {
			return err
		}
		return nil
	}
	cmd.AddCommand(newAgentGuestExecCommand())
	return cmd
}

// guestFlags adds --shares.
func guestFlags(cmd *cobra.Command) func() agent.GuestOptions {
	otherwise := os.Getenv(guestshare.EnvShares)
	if otherwise == "" {
		otherwise = guestshare.SharesDir
	}
	shares := cmd.Flags().String("shares", otherwise, "folder of the two shares ($"+guestshare.EnvShares+")")
	return func() agent.GuestOptions { return agent.GuestOptions{Shares: *shares, Environ: os.Environ()} }
}

func newAgentGuestExecCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "exec --id ID -- COMMAND [ARGUMENT…]",
		Short:   "Run a command beside the container's, and report its exit code in the status share",
		Example: `  "/Volumes/My Shared Files/bullpen/bullpen" agent guest exec --id 1 -- uname -a`,
		Args:    cobra.MinimumNArgs(1),
	}
	options := guestFlags(cmd)
	id := cmd.Flags().String("id", "", "name of the report: letters and digits")
	tty := cmd.Flags().Bool("tty", false, "the standard streams are a terminal")
	cobra.CheckErr(cmd.MarkFlagRequired("id"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return agent.GuestExec(cmd.Context(), agent.GuestExecOptions{
			GuestOptions: options(), ID: *id, Command: args, TTY: *tty, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		})
	}
	return cmd
}
