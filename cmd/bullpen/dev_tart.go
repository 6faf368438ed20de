//go:build !production

package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/dev/tart"
)

// guestExit passes on an exit code that has been explained already.
type guestExit int

func (guestExit) Error() string   { return "" }
func (e guestExit) ExitCode() int { return int(e) }

func newDevTartCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tart COMMAND [ARGUMENTS]",
		Short: "Run a fake of Tart, for node agents on machines that are not Macs (development only)",
		Long: `Run a fake of Tart, the program that runs macOS VMs: its commands, exit codes, JSON, locks and defects, as far as they are
publicly known. A VM is a tree of processes of this machine, and is NOT isolated from it.

It knows clone, pull, set, run, exec, ip, stop, suspend, delete, list, get, fqn, prune, login and --version, with
Tart's own flags. ` + "`launchctl print gui/UID`" + ` and ` + "`launchctl kickstart TARGET`" + ` behave like that program's.

TART_HOME must be a directory of its own. The file faketart.json in it sets durations and faults, for example:

  {"timing": {"boot": "5s"}, "rules": [{"command": "clone", "times": 1, "effect": "answer", "message": "no-space"}]}

Effects are answer, fail-afterwards, hang, delay, crash, ghost, unlocked, dead-socket, ignore-interrupt and corrupt.`,
		Example: `  export TART_HOME=$(mktemp -d)
  bullpen dev tart clone ghcr.io/cirruslabs/macos-runner:sequoia demo
  bullpen dev tart run demo --no-graphics &
  bullpen dev tart exec demo uname
  bullpen dev tart stop demo`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
				return cmd.Help()
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			code := tart.Main(tart.Program{
				Self: []string{self, "dev", "tart"}, Args: args, Stdin: os.Stdin, Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(),
			})
			if code != 0 {
				return guestExit(code)
			}
			return nil
		},
	}
}
