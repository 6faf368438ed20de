// Command run is what `make soak-guards` runs: see docs/internals/soak.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/bullpen-ci/bullpen/test/soak/guards"
)

type flags struct {
	only, dir     string
	seed          uint64
	sound         bool
	list, verbose bool
}

func main() { os.Exit(run()) }

func run() int {
	var f flags
	flag.StringVar(&f.only, "only", "", "guards to switch off, separated by commas (default: all, one after another)")
	flag.Uint64Var(&f.seed, "seed", 1, "decides what the schedules leave open")
	flag.BoolVar(&f.sound, "sound", false, "run each schedule on the product as it is: nothing may be found")
	flag.BoolVar(&f.list, "list", false, "print the table of guards, and run nothing")
	flag.BoolVar(&f.verbose, "v", false, "show what each soak says")
	flag.StringVar(&f.dir, "dir", "", "folder for executables and state (default: a new one); what is not caught is kept there")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), `Switch guards of the product off, one at a time, and see the soak's checker find it.

    make soak-guards                                          all of them: under an hour
    make soak-guards SOAK_FLAGS="-only limit-lock -seed 7"    one
    make soak-guards SOAK_FLAGS="-sound"                      the same schedules, with nothing switched off

`)
		flag.PrintDefaults()
	}
	flag.Parse()
	if f.list {
		fmt.Print(guards.Markdown())
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed, err := do(ctx, f)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak-guards:", err)
		return 2
	}
	if missed {
		return 1
	}
	return 0
}

func do(ctx context.Context, f flags) (missed bool, err error) {
	chosen, err := choose(f)
	if err != nil {
		return false, err
	}
	root, err := guards.Root(".")
	if err != nil {
		return false, err
	}
	if f.dir == "" {
		if f.dir, err = os.MkdirTemp("", "bullpen-soak-guards-"); err != nil {
			return false, fmt.Errorf("making a folder: %w", err)
		}
	}
	if f.dir, err = filepath.Abs(f.dir); err != nil {
		return false, fmt.Errorf("resolving the folder: %w", err)
	}
	if err := os.MkdirAll(f.dir, 0o711); err != nil { //nolint:gosec // PostgreSQL runs as another user when we are root: it has to pass
		return false, fmt.Errorf("making the folder: %w", err)
	}
	if err := os.Chmod(f.dir, 0o711); err != nil { //nolint:gosec // as above
		return false, fmt.Errorf("opening the folder to PostgreSQL: %w", err)
	}
	builder := &guards.Builder{Root: root, Dir: filepath.Join(f.dir, "bin")}
	if err := os.MkdirAll(builder.Dir, 0o700); err != nil {
		return false, fmt.Errorf("making a folder: %w", err)
	}
	var results []guards.Result
	for _, g := range chosen {
		result, err := one(ctx, f, builder, g)
		if err != nil {
			return false, err
		}
		results = append(results, result)
		if !result.Caught() {
			missed = true
			fmt.Printf("    NOT as expected: what was seen is in %s\n", filepath.Join(f.dir, g.Name))
		}
	}
	print(results)
	if !missed {
		err = os.RemoveAll(f.dir)
	}
	return missed, err
}

// choose lists the guards that are asked for; for -sound, each scenario once, with nothing switched off.
func choose(f flags) ([]guards.Guard, error) {
	all := guards.Table()
	if f.only != "" {
		names := strings.FieldsFunc(f.only, func(r rune) bool { return r == ',' || r == ' ' })
		for _, name := range names {
			if !slices.ContainsFunc(all, func(g guards.Guard) bool { return g.Name == name }) {
				return nil, fmt.Errorf("there is no guard %q: -list shows them", name)
			}
		}
		all = slices.DeleteFunc(all, func(g guards.Guard) bool { return !slices.Contains(names, g.Name) })
	}
	if !f.sound {
		return all, nil
	}
	var scenarios []guards.Guard
	for _, g := range all {
		if !slices.ContainsFunc(scenarios, func(s guards.Guard) bool { return s.Scenario.Name == g.Scenario.Name }) {
			scenarios = append(scenarios, guards.Guard{Name: "nothing, in " + g.Scenario.Name, Scenario: g.Scenario})
		}
	}
	return scenarios, nil
}

// one builds, runs and removes files that are no longer needed.
func one(ctx context.Context, f flags, builder *guards.Builder, g guards.Guard) (guards.Result, error) {
	fmt.Printf("%s without %s: %s\n", time.Now().UTC().Format("15:04:05"), g.Name, g.Off)
	name := strings.NewReplacer(" ", "-", ",", "").Replace(g.Name)
	weakened, state := filepath.Join(f.dir, name+".bin"), filepath.Join(f.dir, name)
	defer os.RemoveAll(weakened)
	built, err := builder.Without(ctx, g, weakened)
	if err != nil {
		return guards.Result{}, err
	}
	log, err := os.Create(state + ".log")
	if err != nil {
		return guards.Result{}, fmt.Errorf("making a log: %w", err)
	}
	defer log.Close()
	var out io.Writer = log
	if f.verbose {
		out = io.MultiWriter(log, os.Stdout)
	}
	result, err := g.Soak(ctx, built, state, f.seed, out)
	if err != nil {
		return result, fmt.Errorf("%w (see %s)", err, log.Name())
	}
	fmt.Printf("    found in %s: %s\n", result.Took.Round(time.Second), result.Findings())
	if result.Caught() {
		return result, errors.Join(os.RemoveAll(state), os.Remove(log.Name()))
	}
	return result, nil
}

func print(results []guards.Result) {
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "guard\tmust be found\tfound\t")
	for _, r := range results {
		expected := strings.Join(r.Guard.Rows, ", ")
		if expected == "" {
			expected = "nothing"
		}
		mark := ""
		if !r.Caught() {
			mark = "<-- not caught"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.Guard.Name, expected, r.Findings(), mark)
	}
	_ = table.Flush() // standard output
}
