// Package pty opens pseudo-terminals for the fake of Tart, which gives commands in its guests a terminal, and for tests.
//
// Begin with Open.
package pty
