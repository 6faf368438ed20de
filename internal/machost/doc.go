// Package machost makes a Mac a host of the fleet, and verifies that it is one: a list of steps, each of which checks the present state,
// changes what differs, and checks again (HOST-1). Applying any number of times, on the remains of any earlier version, ends in the same
// state, and a state that cannot be reached fails loudly with the step, the file and the remedy.
//
// The steps (package steps) work on a [Host], a small interface of files and commands with a root prefix, so that tests give them a model
// of macOS; [Local] is the machine itself. [Apply] runs them, [Plan] only checks. The desired state is in [Config], in which every field is
// declared to be of the fleet or of one host; secrets are in [Secrets], reach a host on standard input alone ([Payload]), and are removed
// from all output, should a step ever put one there ([Redactor], HOST-6). Package remote does the same on a remote Mac, over SSH. The pure
// editors are in pfconf and autologin.
//
// Begin with Apply in engine.go.
package machost
