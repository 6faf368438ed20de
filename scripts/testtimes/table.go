package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// action is what is read of one node of `go test -debug-actiongraph`.
type action struct {
	Mode      string
	Package   string
	TimeStart time.Time
	TimeDone  time.Time
}

// row is one line of the table; times are seconds.
type row struct {
	name                     string
	compile, link, test, cpu float64
}

func readRuns(file string) ([]testRun, error) {
	in, err := os.Open(file) //nolint:gosec // named by the Makefile
	if os.IsNotExist(err) {
		return nil, nil // every result was Go's to replay
	} else if err != nil {
		return nil, fmt.Errorf("opening the file of times: %w", err)
	}
	defer in.Close()
	var runs []testRun
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var run testRun
		if err := json.Unmarshal(lines.Bytes(), &run); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		runs = append(runs, run)
	}
	return runs, lines.Err()
}

func readActions(file string) ([]action, error) {
	text, err := os.ReadFile(file) //nolint:gosec // named by the Makefile
	if err != nil {
		return nil, fmt.Errorf("reading what was built: %w", err)
	}
	var actions []action
	if err := json.Unmarshal(text, &actions); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return actions, nil
}

// ours is the module's path, which begins the name of each of its packages.
const ours = "github.com/bullpen-ci/bullpen"

// rows are the module's packages, those that took longest first, and at the end what was compiled of others, and the sum.
func rows(runs []testRun, actions []action) []row {
	byName := map[string]*row{}
	at := func(name string) *row {
		if byName[name] == nil {
			byName[name] = &row{name: name}
		}
		return byName[name]
	}
	for _, a := range actions {
		took := a.TimeDone.Sub(a.TimeStart).Seconds()
		if a.TimeStart.IsZero() || took <= 0 {
			continue
		}
		name, is := strings.CutPrefix(strings.TrimSuffix(strings.TrimSuffix(a.Package, ".test"), "_test"), ours+"/")
		if !is {
			name = "(other modules)"
		}
		switch a.Mode {
		case "build":
			at(name).compile += took
		case "link":
			at(name).link += took
		}
	}
	for _, run := range runs {
		name := run.Dir
		for candidate := range byName { // the directory ends in the package's path
			if strings.HasSuffix(run.Dir, "/"+candidate) {
				name = candidate
			}
		}
		r := at(name)
		r.test, r.cpu = r.test+run.Seconds, r.cpu+run.CPU
	}
	var sorted []row
	sum := row{name: "all, added up"}
	for _, r := range byName {
		sorted = append(sorted, *r)
		sum.compile, sum.link, sum.test, sum.cpu = sum.compile+r.compile, sum.link+r.link, sum.test+r.test, sum.cpu+r.cpu
	}
	slices.SortFunc(sorted, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.total(), a.total()), cmp.Compare(a.name, b.name))
	})
	return append(sorted, sum)
}

func (r row) total() float64 { return r.compile + r.link + r.test }

// write prints the rows that took a second or more, and counts the rest.
func write(out io.Writer, rows []row) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "compile\tlink\ttest\tof it CPU\t \tpackage (seconds)")
	short := 0
	for _, r := range rows {
		if r.total() < 1 {
			short++
			continue
		}
		fmt.Fprintf(table, "%.1f\t%.1f\t%.1f\t%.1f\t \t%s\n", r.compile, r.link, r.test, r.cpu, r.name)
	}
	fmt.Fprintf(table, "\t\t\t\t \tand %d packages of less than a second\n", short)
	return table.Flush()
}
