// Command runnerkinds writes docs/reference/runner-kinds.md from the registry in test/runnerkinds. `make generate` runs it at the
// top of the repository.
package main

import (
	"fmt"
	"os"

	"github.com/bullpen-ci/bullpen/test/runnerkinds"
)

func main() {
	if err := os.WriteFile("docs/reference/runner-kinds.md", []byte(runnerkinds.Document()), 0o644); err != nil { //nolint:gosec // a document
		fmt.Fprintln(os.Stderr, "runnerkinds: run it at the top of the repository:", err)
		os.Exit(1)
	}
}
