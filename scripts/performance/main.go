// Performance writes docs/internals/performance.json, the tables of docs/internals/performance.md and of README.md from runs of `make bench`: `go run ./scripts/performance FILE…`,
// the oldest first. Without files it writes the tables from docs/internals/performance.json as it is.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	benchresults "github.com/bullpen-ci/bullpen/test/bench/results"
)

const (
	results = "docs/internals/performance.json"
	begin   = "<!-- begin: make performance -->"
	end     = "<!-- end: make performance -->"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "performance:", err)
		os.Exit(1)
	}
}

func write(files []string) error {
	var runs []benchresults.Run
	if len(files) == 0 {
		if err := read(results, &runs); err != nil {
			return err
		}
	}
	for _, file := range files {
		var run benchresults.Run
		if err := read(file, &run); err != nil {
			return err
		}
		runs = append(runs, run)
	}
	text, err := json.MarshalIndent(runs, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the runs: %w", err)
	}
	if err := os.WriteFile(results, append(text, '\n'), 0o644); err != nil { //nolint:gosec // world-readable
		return fmt.Errorf("writing the runs: %w", err)
	}
	for page, table := range map[string]string{"docs/internals/performance.md": benchresults.Table(runs), "README.md": benchresults.Short(runs)} {
		was, err := os.ReadFile(page)
		if err != nil {
			return fmt.Errorf("reading a page: %w", err)
		}
		is, err := benchresults.Between(string(was), begin, end, table)
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if err := os.WriteFile(page, []byte(is), 0o644); err != nil { //nolint:gosec // world-readable
			return fmt.Errorf("writing a page: %w", err)
		}
	}
	return nil
}

func read(file string, into any) error {
	text, err := os.ReadFile(file) //nolint:gosec // a file that the caller names
	if err != nil {
		return fmt.Errorf("reading results: %w", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}
