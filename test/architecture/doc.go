// Package architecture holds the fences that need to see the whole module: which package may depend on what, directly
// or through others, and that each one says what it is for. (Single imports are also fenced in .golangci.yaml, where
// the editor shows them.)
//
// It has tests only. Begin with the tables in fences_test.go.
package architecture
