package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox/tart"
)

// tartFlags configure Tart.
type tartFlags struct {
	program, home, launchctl string
	slots                    int
}

// addProgram adds the flags that say which Tart it is.
func (f *tartFlags) addProgram(flags *pflag.FlagSet) {
	flags.StringVar(&f.program, "tart", "tart", "with --sandbox tart: the tart program, optionally with arguments")
	flags.StringVar(&f.home, "tart-home", "", "with --sandbox tart: directory of Tart's virtual machines (default: $TART_HOME, or ~/.tart)")
}

func (f *tartFlags) add(flags *pflag.FlagSet) {
	f.addProgram(flags)
	flags.StringVar(&f.launchctl, "launchctl", "launchctl", "with --sandbox tart: the launchctl program, for the user's GUI session and the login window")
	flags.IntVar(&f.slots, "vm-slots", tart.MaxSlots, "with --sandbox tart: number of concurrent virtual machines, 1 or 2")
}

// options finds the programs, and says which one is missing.
func (f *tartFlags) options(stateDir string, log *slog.Logger) (tart.Options, error) {
	opts := tart.Options{StateDir: stateDir, Slots: f.slots, Log: log, Tart: strings.Fields(f.program)}
	opts.Launchctl = strings.Fields(f.launchctl) // cleaning up has no such flag, and asks for no session
	if len(opts.Tart) == 0 {
		return opts, fmt.Errorf("--tart must name a program, got %q", f.program)
	}
	for _, name := range registryVariables {
		if value := os.Getenv(name); value != "" {
			opts.Env = append(opts.Env, name+"="+value)
		}
	}
	path, err := exec.LookPath(opts.Tart[0])
	if err != nil {
		return opts, fmt.Errorf("finding Tart: %w. Install it (brew install cirruslabs/cli/tart), or set --tart", err)
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

// registryVariables are those from which Tart takes the credentials of a registry.
var registryVariables = []string{"TART_REGISTRY_HOSTNAME", "TART_REGISTRY_USERNAME", "TART_REGISTRY_PASSWORD"}

// registryFile holds such credentials in the state directory, a variable a line. `bullpen host apply` writes the agent's launchd job, and so
// its environment, but no file there.
const registryFile = "registry.env"

// registryCredentials reads that file, if there is one. No error contains a value.
func registryCredentials(stateDir string) ([]string, error) {
	path := filepath.Join(stateDir, registryFile)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading credentials of the registry: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("other users may read %s: run `chmod 600 %s`", path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading credentials of the registry: %w", err)
	}
	var variables []string
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, _, found := strings.Cut(line, "=")
		if !found || !slices.Contains(registryVariables, name) {
			return nil, fmt.Errorf("%s, line %d: must be NAME=value, where NAME is one of %s", path, number, strings.Join(registryVariables, ", "))
		}
		variables = append(variables, line)
	}
	return variables, nil
}

// open opens the sandbox.
func (f *tartFlags) open(stateDir string, log *slog.Logger) (*tart.Sandbox, error) {
	if f.slots < 1 || f.slots > tart.MaxSlots {
		return nil, fmt.Errorf("--vm-slots must be 1 or %d (Apple's licence and kernel allow no more), got %d", tart.MaxSlots, f.slots)
	}
	opts, err := f.options(stateDir, log)
	if err != nil {
		return nil, err
	}
	if len(opts.Launchctl) == 0 {
		return nil, fmt.Errorf("--launchctl must name a program, got %q", f.launchctl)
	}
	if _, err := exec.LookPath(opts.Launchctl[0]); err != nil {
		return nil, fmt.Errorf("finding launchctl: %w. Set --launchctl", err)
	}
	credentials, err := registryCredentials(stateDir)
	if err != nil {
		return nil, err
	}
	opts.Env = append(opts.Env, credentials...) // the last of a name counts
	return tart.New(opts)
}
