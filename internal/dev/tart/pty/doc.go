// Package pty opens pseudo-terminals: for a command in a pod that wants a terminal, and for the stand-in of the
// program that runs macOS guests.
//
// It imports golang.org/x/sys alone. Begin with Open.
package pty
