// Package guards proves the soak's checker on the product itself: guards of the product are switched off, a few lines at a
// time, a short soak runs on the weakened executables, and the checker must report the row that the guard protects.
//
// Begin with [Table]. Nothing in the working tree changes: the weakened files are handed to "go build -overlay". `make
// soak-guards` runs the soaks, docs/internals/soak.md says what came of them, and the tests of this package keep the table
// from rotting: a text that a guard names must be there exactly once, and the product must still build without it.
package guards
