//go:build unix

// Command faketart is the fake of `tart` as an executable of its own; internal/dev/tart says what it does. Under the name
// launchctl it is a fake of that.
package main

import (
	"os"

	"github.com/bullpen-ci/bullpen/internal/dev/tart"
)

func main() {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	os.Exit(tart.Main(tart.Program{
		Self: []string{self}, Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}))
}
