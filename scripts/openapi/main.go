// Command openapi writes api/openapi/openapi.yaml, the description of the HTTP API for administrators, and docs/reference/api.md, from the
// routes of internal/server/admin, the types of api/adminapi with their comments, and operations.go's text on each route. `make generate`
// runs it at the top of the repository.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/bullpen-ci/bullpen/internal/server/admin"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "openapi: run it at the top of the repository:", err)
		os.Exit(1)
	}
}

func run(top string) error {
	words, err := readWords(top + "/api/adminapi")
	if err != nil {
		return err
	}
	document, err := describe(admin.Routes(), operations(), words)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(top+"/api/openapi/openapi.yaml", document, 0o644),                                           //nolint:gosec // no secret
		os.WriteFile(top+"/docs/reference/api.md", []byte(readable(admin.Routes(), operations(), words)), 0o644), //nolint:gosec // a document
	)
}
