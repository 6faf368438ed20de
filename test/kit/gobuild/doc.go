// Package gobuild compiles programs that tests run: the product, its fakes, and helpers of a single test.
//
// All of them are compiled the way that images are (without cgo, with -trimpath), and so is what the Makefile builds: hundreds
// of packages that one of them needs, Go's cache then has for the others. For tests only.
package gobuild
