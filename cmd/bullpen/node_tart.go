package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox/tart"
)

// tartFlags are what `bullpen node` is told of Tart.
type tartFlags struct {
	program, home, launchctl string
	slots                    int
}

// addProgram adds the flags that say which Tart it is.
func (f *tartFlags) addProgram(flags *pflag.FlagSet) {
	flags.StringVar(&f.program, "tart", "tart", "with --sandbox tart: the program, and perhaps first arguments of its")
	flags.StringVar(&f.home, "tart-home", "", "with --sandbox tart: where Tart keeps its virtual machines (default: $TART_HOME, or ~/.tart)")
}

func (f *tartFlags) add(flags *pflag.FlagSet) {
	f.addProgram(flags)
	flags.StringVar(&f.launchctl, "launchctl", "launchctl", "with --sandbox tart: the program that tells of the user's GUI session, and restarts the login window")
	flags.IntVar(&f.slots, "vm-slots", tart.MaxSlots, "with --sandbox tart: how many virtual machines may run at a time, 1 or 2")
}

// options finds the programs, and says which one is missing.
func (f *tartFlags) options(stateDir string, log *slog.Logger) (tart.Options, error) {
	opts := tart.Options{StateDir: stateDir, Slots: f.slots, Log: log, Tart: strings.Fields(f.program)}
	opts.Launchctl = strings.Fields(f.launchctl) // cleaning up has no such flag, and asks for no session
	if len(opts.Tart) == 0 {
		return opts, fmt.Errorf("--tart %q: name the program", f.program)
	}
	for _, name := range []string{"TART_REGISTRY_HOSTNAME", "TART_REGISTRY_USERNAME", "TART_REGISTRY_PASSWORD"} {
		if value := os.Getenv(name); value != "" {
			opts.Env = append(opts.Env, name+"="+value)
		}
	}
	path, err := exec.LookPath(opts.Tart[0])
	if err != nil {
		return opts, fmt.Errorf("finding Tart: %w; install it (brew install cirruslabs/cli/tart), or say where it is with --tart", err)
	}
	if opts.Tart[0], err = filepath.Abs(path); err != nil {
		return opts, fmt.Errorf("finding Tart: %w", err)
	}
	if f.home != "" {
		if opts.TartHome, err = filepath.Abs(f.home); err != nil {
			return opts, fmt.Errorf("--tart-home: %w", err)
		}
	}
	return opts, nil
}

// open opens the sandbox.
func (f *tartFlags) open(stateDir string, log *slog.Logger) (*tart.Sandbox, error) {
	if f.slots < 1 || f.slots > tart.MaxSlots {
		return nil, fmt.Errorf("--vm-slots %d: give 1 or %d; Apple's licence and its kernel allow no more", f.slots, tart.MaxSlots)
	}
	opts, err := f.options(stateDir, log)
	if err != nil {
		return nil, err
	}
	if len(opts.Launchctl) == 0 {
		return nil, fmt.Errorf("--launchctl %q: name the program", f.launchctl)
	}
	if _, err := exec.LookPath(opts.Launchctl[0]); err != nil {
		return nil, fmt.Errorf("finding launchctl: %w; say where it is with --launchctl", err)
	}
	return tart.New(opts)
}
