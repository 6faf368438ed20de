// Command incidents writes docs/incidents.md from the registry in test/incidents. `make generate` runs it at the top of the
// repository.
package main

import (
	"fmt"
	"os"

	"github.com/bullpen-ci/bullpen/test/incidents"
)

func main() {
	if err := os.WriteFile("docs/incidents.md", []byte(incidents.Document()), 0o644); err != nil { //nolint:gosec // a document
		fmt.Fprintln(os.Stderr, "incidents: run it at the top of the repository:", err)
		os.Exit(1)
	}
}
