//go:build unix

// Command fakemac is the model of a Mac as an executable: each of the Mac's commands, by the name under which it lies in the model's
// root; internal/dev/mac says what it does.
package main

import (
	"fmt"
	"os"

	"github.com/bullpen-ci/bullpen/internal/dev/mac"
)

func main() {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "finding this program:", err)
		os.Exit(70)
	}
	os.Exit(mac.Main(mac.Program{Executable: self, Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}))
}
