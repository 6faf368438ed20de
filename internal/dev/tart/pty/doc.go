// Package pty opens pseudo-terminals for the fake of Tart, which gives commands in its guests a terminal, and for tests.
//
// It imports golang.org/x/sys alone. Begin with Open.
package pty
