package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		var exit exitCode
		if errors.As(err, &exit) {
			os.Exit(int(exit))
		}
		fmt.Fprintln(os.Stderr, "testtimes:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) >= 3 && args[0] == "record":
		return record(args[1], args[2], args[3:])
	case len(args) >= 3 && args[0] == "table":
		runs, err := readRuns(args[1])
		if err != nil {
			return err
		}
		var actions []action
		for _, graph := range args[2:] {
			more, err := readActions(graph)
			if err != nil {
				return err
			}
			actions = append(actions, more...)
		}
		return write(os.Stdout, rows(runs, actions))
	}
	return errors.New("usage: testtimes record FILE PROGRAM [ARGUMENT…] | testtimes table FILE GRAPH…")
}
