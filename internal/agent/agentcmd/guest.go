package agentcmd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/bullpen-ci/bullpen/internal/agent"
	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
)

// guestCommand is what the node agent of a Mac starts inside a virtual machine.
func guestCommand(program Program) Command {
	return Command{
		Use:   "guest",
		Short: "Run the container's command in a virtual machine once, and report its exit code",
		Long: `Runs the command of guest.json in the read-only share "bullpen", once in the life of the virtual machine. Writes log, heartbeat
and exit report to the share "status". It returns after the first heartbeat and continues in the background; starting it again has no effect.

The node agent starts it through Tart's guest agent. An image without Tart's guest agent can start it with --foreground, by a LaunchAgent of the
user who logs in (docs/guides/macos.md).`,
		Example: `  "/Volumes/My Shared Files/bullpen/bullpen" agent guest
  "/Volumes/My Shared Files/bullpen/bullpen" agent guest --foreground`,
		Commands: []Command{guestExecCommand()},
		Define: func(flags *flag.FlagSet) Run {
			options := guestFlags(flags)
			foreground := flags.Bool("foreground", false, "stay until the command has exited")
			return func(ctx context.Context, _ []string) error {
				opts := options()
				if !*foreground {
					self, err := os.Executable()
					if err != nil {
						return fmt.Errorf("finding this binary: %w", err)
					}
					argv := append([]string{self}, program.Prefix...)
					return agent.DetachGuest(ctx, opts, append(argv, "guest", "--foreground", "--shares", opts.Shares))
				}
				opts.Log = logger()
				if err := agent.Guest(ctx, opts); !errors.Is(err, agent.ErrGuestBegun) {
					return err
				}
				return nil
			}
		},
	}
}

// guestFlags adds --shares.
func guestFlags(flags *flag.FlagSet) func() agent.GuestOptions {
	otherwise := os.Getenv(guestshare.EnvShares)
	if otherwise == "" {
		otherwise = guestshare.SharesDir
	}
	shares := flags.String("shares", otherwise, "directory of the two shares ($"+guestshare.EnvShares+")")
	return func() agent.GuestOptions { return agent.GuestOptions{Shares: *shares, Environ: os.Environ()} }
}

func guestExecCommand() Command {
	return Command{
		Use:      "exec --id ID -- COMMAND [ARGUMENT…]",
		Short:    "Run another command in the virtual machine, and report its exit code",
		Example:  `  "/Volumes/My Shared Files/bullpen/bullpen" agent guest exec --id 1 -- uname -a`,
		Required: []string{"id"},
		Args:     SomeArgs,
		Define: func(flags *flag.FlagSet) Run {
			options := guestFlags(flags)
			id := flags.String("id", "", "name of the report: letters and digits")
			tty := flags.Bool("tty", false, "the standard streams are a terminal")
			return func(ctx context.Context, args []string) error {
				return agent.GuestExec(ctx, agent.GuestExecOptions{
					GuestOptions: options(), ID: *id, Command: args, TTY: *tty, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
				})
			}
		},
	}
}
