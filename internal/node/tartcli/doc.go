// Package tartcli is the client of Tart, the program that runs macOS virtual machines. Tart is an external program that the
// operator of a Mac installs: this package starts it with arguments, bounds how long it may take, and reads what it answers.
//
//   - client.go: how a command is run
//   - commands.go: the commands, each as a method
//   - run.go, exec.go: the argument vectors of those that last, for whoever starts and keeps them; why a VM's run has ended, and who runs it
//   - parse.go: what `list` and `--version` print, read leniently: unknown keys are ignored, numbers may be strings
//   - kind.go: what a failure means. Tart's exit codes say little (1 and 2 are also what a guest's command may end with, and 0
//     is how `run` ends when the guest crashed), and its messages are text for people. So this is the one place of the product
//     where an error is told from another by its text; everybody else asks for an Error's Kind.
//
// Whatever fails may have had its effect all the same: after a failure, ask List.
//
// What is known of Tart's behaviour comes from its public sources and documentation; none of it could be tried on a Mac. Tests
// run against the fake in package devtart.
//
// Begin with New.
package tartcli
