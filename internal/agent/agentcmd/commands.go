package agentcmd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bullpen-ci/bullpen/internal/agent"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podenv"
)

// Program says as what the commands are started.
type Program struct {
	// Name of the executable, and the arguments between it and the commands.
	Name   string
	Prefix []string
}

// Commands are all the commands, in alphabetical order.
func Commands(program Program) []Command {
	name := program.Name
	for _, word := range program.Prefix {
		name += " " + word
	}
	return []Command{guestCommand(program), installCommand(name), pollCommand(name), readyCommand(name), runCommand(name)}
}

// statusFlag adds --status-dir.
func statusFlag(flags *flag.FlagSet) *string {
	return flags.String("status-dir", os.Getenv(podenv.StatusDir),
		"directory of the supervisor's signs, where it may not write into the shared one ($"+podenv.StatusDir+")")
}

// sharedFlag adds --shared-dir and returns how to name the file of the configuration in it.
func sharedFlag(flags *flag.FlagSet) func() (string, error) {
	dir := flags.String("shared-dir", os.Getenv(podenv.SharedDir), "directory that poller and runner share ($"+podenv.SharedDir+")")
	return func() (string, error) {
		if *dir == "" {
			return "", fmt.Errorf("no shared directory: set $%s or --shared-dir", podenv.SharedDir)
		}
		return filepath.Join(*dir, podenv.FileJIT), nil
	}
}

func pollCommand(name string) Command {
	return Command{
		Use:   "poll",
		Short: "Trade the pod's token for one JIT configuration, stage it, acknowledge, exit",
		Long: `Asks the server for work until there is a response, and stages it in the shared directory (mode 0600, by rename).
Exit codes: 0 when a response is staged, 1 when the token is not accepted or staging failed, 143 when stopped before a response.

The runner's container must be able to read that file. Run both containers as one user, or this one as root, which
gives the file to the owner of the shared directory or to --runner-uid.`,
		Example: `  BULLPEN_DISPATCH_URL=http://bullpen-dispatch.bullpen-system.svc BULLPEN_TOKEN_FILE=/bullpen/token/token \
    BULLPEN_SHARED_DIR=/bullpen/shared ` + name + ` poll`,
		Define: func(flags *flag.FlagSet) Run {
			shared, status := sharedFlag(flags), statusFlag(flags)
			url := flags.String("dispatch-url", os.Getenv(podenv.DispatchURL), "URL of the server ($"+podenv.DispatchURL+")")
			token := flags.String("token-file", os.Getenv(podenv.TokenFile),
				"the pod's projected token, read again at every request ($"+podenv.TokenFile+")")
			uid := flags.Int("runner-uid", -1, "user that owns the staged file (root only)")
			gid := flags.Int("runner-gid", -1, "group that owns the staged file (root only)")
			return func(ctx context.Context, _ []string) error {
				file, err := shared()
				if err != nil {
					return err
				}
				return agent.Poll(ctx, agent.PollOptions{
					URL: *url, TokenFile: *token, JITFile: file, StatusDir: *status, RunnerUID: *uid, RunnerGID: *gid, Log: logger(),
				})
			}
		},
	}
}

func runCommand(name string) Command {
	return Command{
		Use:   "run -- COMMAND [ARGUMENT…]",
		Short: "Wait for the JIT configuration, run the runner once with it, exit with its code",
		Long: `Waits in the runner's container for the staged configuration and starts the runner once, with the configuration in
ACTIONS_RUNNER_INPUT_JITCONFIG. Exits with the runner's own code, 128 + signal when it was killed.

On TERM or INT it exits 0 at once while it waits, stops a runner that has no job, and lets a job that has started finish.

Self-registering runners: with --jit-file the configuration is a file of a mounted Secret, which stays. With --static the runner
registers itself with what --registration-dir holds (files url, name, labels, no-default-labels, group, work-folder, and token, which is waited
for), by "COMMAND configure --unattended" with all of it in ACTIONS_RUNNER_INPUT_ variables. It then takes one job after the
other; on TERM the current job is its last. Both need --status-dir, and start nothing a second time in one pod: they wait for TERM.`,
		Example: `  ` + name + ` run -- /home/runner/bin/Runner.Listener run
  ` + name + ` run --shared-dir /tmp/pod -- bullpen dev runner
  ` + name + ` run --static --registration-dir /bullpen/registration --status-dir /bullpen/shared -- /home/runner/bin/Runner.Listener run`,
		Args: AnyArgs,
		Define: func(flags *flag.FlagSet) Run {
			shared, status := sharedFlag(flags), statusFlag(flags)
			idleStop := flags.Duration("idle-stop", 0, "how long a static runner that is being registered, or has done its last job, may take to stop (default 15s)")
			jit := flags.String("jit-file", "", "the configuration, in a Secret that is mounted for this pod alone")
			static := flags.Bool("static", false, "the runner registers itself, and takes one job after the other")
			registration := flags.String("registration-dir", "", "what a static runner registers itself with: a mounted Secret")
			return func(ctx context.Context, args []string) error {
				switch {
				case *jit != "" && *static:
					return errors.New("--jit-file and --static exclude each other")
				case *static != (*registration != ""):
					return errors.New("--static and --registration-dir need each other")
				}
				file, err := *jit, error(nil)
				if file == "" && !*static {
					if file, err = shared(); err != nil {
						return err
					}
				}
				return agent.Supervise(ctx, agent.SuperviseOptions{
					JITFile: file, Given: *jit != "", RegistrationDir: *registration,
					StatusDir: *status, Command: args, Environ: os.Environ(), IdleStop: *idleStop,
					CAFile: os.Getenv(podenv.CAFile),
					Hidden: []string{podenv.TokenFile, podenv.DispatchURL, podenv.RunnerToken},
					Reap:   os.Getpid() == 1,
					Stdout: os.Stdout, Stderr: os.Stderr, Log: logger(),
				})
			}
		},
	}
}

func readyCommand(name string) Command {
	return Command{
		Use:     "ready",
		Short:   "Readiness probe of the runner's container: exit 0 while no job is known in it",
		Example: "  " + name + " ready\n  " + name + " ready --status-dir /bullpen/shared",
		Define: func(flags *flag.FlagSet) Run {
			shared, status := sharedFlag(flags), statusFlag(flags)
			return func(context.Context, []string) error {
				file, err := shared()
				if err != nil && *status == "" {
					return err
				}
				return agent.Ready(file, *status)
			}
		},
	}
}

func installCommand(name string) Command {
	return Command{
		Use:      "install --to FILE",
		Short:    "Copy this binary into the shared volume, from where both containers start it",
		Example:  "  " + name + " install --to /bullpen/shared/bullpen-agent",
		Required: []string{"to"},
		Define: func(flags *flag.FlagSet) Run {
			to := flags.String("to", "", "file to write")
			return func(context.Context, []string) error { return agent.Install(*to) }
		},
	}
}
