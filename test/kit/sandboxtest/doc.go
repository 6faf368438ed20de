// Package sandboxtest is the conformance suite of the sandbox port: every back end runs it over a Machine of its own.
//
// Begin with Run in suite.go.
package sandboxtest
