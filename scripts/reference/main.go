// Command reference writes docs/reference/crds and docs/reference/configuration.md from the chart's definitions, values and their schema.
// `make generate` runs it at the top of the repository, after scripts/crds. The pages of commands and metrics come from the program itself: see
// the tests TestReference of cmd/bullpen and cmd/bullpen-migrate.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/bullpen-ci/bullpen/test/kit/reference"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "reference: run it at the top of the repository:", err)
		os.Exit(1)
	}
}

func run() error {
	files, err := filepath.Glob("charts/bullpen/crds/*.yaml")
	if err != nil {
		return err
	}
	definitions := make([][]byte, len(files))
	for i, file := range files {
		if definitions[i], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	kinds, err := reference.CRDs(definitions)
	if err != nil {
		return err
	}
	if err := reference.Write("docs/reference/crds", kinds); err != nil {
		return err
	}
	values, err := os.ReadFile("charts/bullpen/values.yaml")
	if err != nil {
		return err
	}
	schema, err := os.ReadFile("charts/bullpen/values.schema.json")
	if err != nil {
		return err
	}
	page, err := reference.Configuration(values, schema)
	if err != nil {
		return err
	}
	return os.WriteFile("docs/reference/configuration.md", []byte(page), 0o644) //nolint:gosec // a document
}
