// Package tartcli is the client of Tart, the program that runs macOS virtual machines. Tart is an external program that the administrator
// of a Mac installs: this package starts it with arguments and a timeout, and parses its output.
//
//   - client.go: how a command is run
//   - commands.go: the commands, each as a method
//   - run.go, exec.go: the argument vectors of commands that last, which callers start and keep; why a VM's run has ended, and which process runs it
//   - parse.go: what `list` and `--version` print, read leniently: unknown keys are ignored, numbers may be strings
//   - kind.go: what a failure means. Tart's exit codes say little (1 and 2 are also what a guest's command may end with, and 0
//     is how `run` ends when the guest crashed), and its messages are text for people. So this is the one place of the product
//     that matches the text of an error; all other code uses an Error's Kind.
//
// A command that failed may still have had its effect: after a failure, ask List.
//
// What is known of Tart's behaviour comes from its public sources and documentation; it was not verified on a Mac. Tests run against the
// fake in internal/dev/tart.
//
// Begin with New.
package tartcli
