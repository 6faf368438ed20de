// Command run is what `make soak` runs: see docs/internals/soak.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/go-logr/logr"

	"github.com/bullpen-ci/bullpen/test/soak"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

type flags struct {
	seed                       uint64
	jobs, faults, runners      int
	real, each                 int
	minutes                    float64
	without, dir, replay       string
	resume, disk               bool
	binary, agent              string
	patience                   time.Duration
	serverArgs, controllerArgs string
	scenario                   string
	bound                      time.Duration
}

// replicas is the scenario of dying servers.
const replicas = "replicas"

func main() { os.Exit(run()) }

func run() int {
	ctrllog.SetLogger(logr.Discard())
	if code, is := soak.Child(); is {
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := do(ctx, parse())
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 2
	}
	if failed {
		return 1
	}
	return 0
}

func parse() flags {
	var f flags
	flag.Uint64Var(&f.seed, "seed", 0, "decides jobs and faults; 0 takes one from the clock, and prints it")
	flag.IntVar(&f.jobs, "jobs", 300, "how many jobs are run")
	flag.IntVar(&f.faults, "faults", 30, "how many faults and changes there are")
	flag.Float64Var(&f.minutes, "minutes", 0, "over how long they are spread (default: a second for each job, ten for each fault)")
	flag.IntVar(&f.each, "round", 500, "jobs of one round; after each everything is checked, and -resume goes on from there")
	flag.IntVar(&f.runners, "runners", 12, "size of the large pool, whose runners are synthetic")
	flag.IntVar(&f.real, "real", 2, "size of the pool whose runners are processes")
	flag.StringVar(&f.without, "without", "", "kinds of faults to leave out, separated by commas: "+strings.Join(schedule.Kinds(), ","))
	flag.StringVar(&f.dir, "dir", "", "state folder (default: a new one under the temporary folder, kept if the soak fails)")
	flag.StringVar(&f.scenario, "scenario", "faults", "faults, or "+replicas+": one of two servers dies every 20 s at saturation")
	flag.DurationVar(&f.bound, "bound", soak.ReplicaBound, "how long a job may wait in the scenario replicas")
	flag.BoolVar(&f.disk, "disk", false, "give the database a disk in memory, and fill it now and then (Linux, as root)")
	flag.BoolVar(&f.resume, "resume", false, "go on with the soak in -dir")
	flag.StringVar(&f.replay, "replay", "", "carry out one schedule.json again")
	flag.StringVar(&f.binary, "binary", "bin/bullpen-faults", "the product, with fault points")
	flag.StringVar(&f.agent, "agent", "", "bullpen-agent (default: beside the product)")
	flag.DurationVar(&f.patience, "patience", 3*time.Minute, "how long what has to go at the end may take")
	flag.StringVar(&f.serverArgs, "server-args", "", "added to the servers' command lines, separated by spaces")
	flag.StringVar(&f.controllerArgs, "controller-args", "", "added to the controller's")
	flag.Parse()
	return f
}

func do(ctx context.Context, f flags) (failed bool, err error) {
	opts := soak.Options{
		Dir: f.dir, Binary: f.binary, Agent: f.agent, Resume: f.resume, Runners: f.runners, RealRunners: f.real, Patience: f.patience, Disk: f.disk,
		ServerArgs: strings.Fields(f.serverArgs), ControllerArgs: strings.Fields(f.controllerArgs), Out: os.Stdout,
	}
	if f.scenario == replicas {
		opts.CatchUpEvery = time.Minute // as in production: the bound is derived from it
	}
	if opts.Rounds, err = f.rounds(); err != nil {
		return false, err
	}
	if opts.Dir == "" {
		if opts.Resume {
			return false, errors.New("name the folder to resume with -dir")
		}
		if opts.Dir, err = os.MkdirTemp("", "bullpen-soak-"); err != nil {
			return false, fmt.Errorf("making a state folder: %w", err)
		}
		defer func() {
			if !failed && err == nil {
				_ = os.RemoveAll(opts.Dir)
			}
		}()
	}
	fmt.Printf("seed %d, state folder %s\n", opts.Rounds[0].Options.Seed, opts.Dir)
	report, err := soak.Run(ctx, opts)
	if err != nil {
		return false, err
	}
	if report.Failed() {
		fmt.Printf("FAILED with seed %d. Everything that was seen is in %s; how to read it: docs/internals/soak.md\n", opts.Rounds[0].Options.Seed, opts.Dir)
	}
	return report.Failed(), nil
}

// rounds are the schedules: one that was written down, those of a directory that is resumed, or new ones.
func (f flags) rounds() ([]schedule.Schedule, error) {
	if f.replay != "" {
		s, err := readSchedules(f.replay)
		return s, err
	}
	plan := filepath.Join(f.dir, "soak.json")
	if f.resume {
		return readSchedules(plan)
	}
	switch f.scenario {
	case replicas:
		return []schedule.Schedule{schedule.Replicas(time.Duration(max(f.minutes, 1)*float64(time.Minute)), f.runners, f.bound)}, nil
	case "faults":
	default:
		return nil, fmt.Errorf("there is no scenario %q: use faults or replicas", f.scenario)
	}
	if f.seed == 0 {
		f.seed = uint64(time.Now().UnixNano()) //nolint:gosec // no negative number for 200 years
	}
	count := max(1, (f.jobs+f.each-1)/max(1, f.each))
	length := time.Duration(f.minutes * float64(time.Minute))
	if length == 0 {
		length = max(time.Duration(f.jobs)*time.Second, time.Duration(f.faults)*10*time.Second)
	}
	without := split(f.without)
	if !f.disk {
		without = append(without, schedule.PostgresFull)
	}
	var rounds []schedule.Schedule
	for n := range count {
		s, err := schedule.Make(schedule.Options{
			Seed: f.seed, Round: n, Jobs: share(f.jobs, count, n), Faults: share(f.faults, count, n),
			Length: schedule.Duration(length) / schedule.Duration(count), Without: without,
		})
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, s)
	}
	return rounds, nil
}

// share is the n-th of parts of a total that are as even as can be.
func share(total, parts, n int) int { return total*(n+1)/parts - total*n/parts }

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func readSchedules(path string) ([]schedule.Schedule, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a schedule: %w", err)
	}
	var one schedule.Schedule
	if err := json.Unmarshal(data, &one); err == nil && one.Options.Length > 0 {
		return []schedule.Schedule{one}, nil
	}
	var all []schedule.Schedule
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("reading the schedule %s: %w", path, err)
	}
	return all, nil
}
