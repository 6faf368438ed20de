// Package docs reads the repository's pages: their blocks of code, the commands in them, what holds each (a test that runs
// it, a check, or a mark that it was not tried), and their links. The tests of this package, of cmd/bullpen and of test/e2e
// hold the pages to it. Begin with page.go.
package docs
