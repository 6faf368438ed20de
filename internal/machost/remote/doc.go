// Package remote makes a Mac a host of the fleet from afar, over SSH: it waits until the host answers, checks its key, uploads this
// program, obtains sudo, runs `bullpen host apply` there with configuration and secrets on standard input, and proves by a new
// connection that the host can still be reached whenever a step asks for it (HOST-7). A dropped connection is no failure: it connects
// again and applies again, which converges.
//
// What must never happen: a secret in an argument, an event or an error (HOST-6); any data sent to a host with another key than the one
// that was pinned or first seen; a second attempt with one password, which locks accounts; an unbounded wait.
//
// All output of the host is untrusted: the length and number of lines are bounded, texts are made printable, and secrets that a program
// there might repeat are removed.
//
// Begin with Bootstrap in bootstrap.go.
package remote
