// Package hosts holds tests of `bullpen host apply` as a whole: the command itself, on the model of a Mac, killed at every change, on disks
// that are full or cannot be written, and on what a crash has left.
//
// Begin with apply_test.go.
package hosts
