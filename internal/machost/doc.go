// Package machost makes a Mac a host of the fleet, and proves that it is one: a list of steps, each of which looks at what there is,
// changes what differs, and looks again (HOST-1). Applying any number of times, on whatever earlier versions left
// behind, ends in the same state, and what cannot be brought about fails loudly with the step, the file and the remedy.
//
// The steps (package steps) work on a [Host], a small port of files and commands with a root prefix, so that tests give them a
// model of macOS; [Local] is the machine itself. [Apply] runs them, [Plan] only looks. What a host is to be is in [Config], in which
// every field is declared to be of the fleet or of one host; what nobody may see is in [Secrets], reaches a host on standard input
// alone ([Payload]), and is taken out of whatever leaves, should a step ever put it there ([Redactor], HOST-6).
// Package remote does the same from afar, over SSH. The pure editors are in pfconf and autologin.
//
// Begin with Apply in engine.go.
package machost
