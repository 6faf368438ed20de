package agentcmd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bullpen-ci/bullpen/internal/agent"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
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
	return []Command{
		buildKitCommand(name), containerHookCommand(name), courierCommand(name), dockerfileCommand(name), guardCommand(name), guestCommand(program), idleCommand(name),
		installCommand(name), pauseCommand(name), pollCommand(name), readyCommand(name), runCommand(name),
	}
}

// statusFlag adds --status-dir.
func statusFlag(flags *flag.FlagSet) *string {
	return flags.String("status-dir", os.Getenv(podenv.StatusDir),
		"directory of the supervisor's status files, if it cannot write to the shared directory ($"+podenv.StatusDir+")")
}

// sharedFlag adds --shared-dir and returns how to name the file of the configuration in it.
func sharedFlag(flags *flag.FlagSet) func() (string, error) {
	dir := flags.String("shared-dir", os.Getenv(podenv.SharedDir), "directory shared by poller and runner ($"+podenv.SharedDir+")")
	return func() (string, error) {
		if *dir == "" {
			return "", fmt.Errorf("no shared directory: set $%s or --shared-dir", podenv.SharedDir)
		}
		return filepath.Join(*dir, podenv.FileJIT), nil
	}
}

func pauseCommand(name string) Command {
	return Command{
		Use:     "pause",
		Short:   "Do nothing until stopped (the pods that keep images on nodes)",
		Example: "  " + name + " pause",
		Define: func(*flag.FlagSet) Run {
			return func(ctx context.Context, _ []string) error {
				<-ctx.Done()
				return nil
			}
		},
	}
}

func pollCommand(name string) Command {
	return Command{
		Use:   "poll",
		Short: "Exchange the pod's token for a JIT configuration, and store it for the runner",
		Long: `Polls the server until it responds, stores the response in the shared directory (mode 0600, by rename), and acknowledges it.
Exit codes: 0 if a response was stored, 1 if the token is rejected or the file cannot be written, 143 if it was stopped before a response.

The container runner must be able to read the file. Run it and poller as the same user, or poller as root: the file then
belongs to the owner of the shared directory, or to --runner-uid.`,
		Example: `  BULLPEN_DISPATCH_URL=http://bullpen-dispatch.bullpen-system.svc BULLPEN_TOKEN_FILE=/bullpen/token/token \
    BULLPEN_SHARED_DIR=/bullpen/shared ` + name + ` poll`,
		Define: func(flags *flag.FlagSet) Run {
			shared, status := sharedFlag(flags), statusFlag(flags)
			url := flags.String("dispatch-url", os.Getenv(podenv.DispatchURL), "URL of the server ($"+podenv.DispatchURL+")")
			token := flags.String("token-file", os.Getenv(podenv.TokenFile),
				"file with the pod's projected token, reloaded before each request ($"+podenv.TokenFile+")")
			uid := flags.Int("runner-uid", -1, "owner of the stored file (only as root)")
			gid := flags.Int("runner-gid", -1, "group of the stored file (only as root)")
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
		Short: "Wait for the JIT configuration, run the runner once, and exit with its code",
		Long: `Waits in the runner's container for the stored configuration, and starts the runner once, with the configuration in
ACTIONS_RUNNER_INPUT_JITCONFIG. Exits with the runner's exit code, or 128 + signal if it was killed; code 7, which says that GitHub rejects
the runner's version, becomes 1 once it has a job.

On TERM or INT it exits 0 while it waits, stops a runner that has no job, and waits for a running job to finish.

Self-registering runners: with --jit-file the configuration is a file of a mounted Secret, and is not deleted. With --static the runner
registers itself from the files in --registration-dir (url, name, labels, no-default-labels, group, work-folder, and token, for which it
waits), by "COMMAND configure --unattended" with their contents in ACTIONS_RUNNER_INPUT_ variables. It then runs one job after
another; on TERM the current job is the last. Both need --status-dir. Both start the runner only once in a pod, and then wait for TERM.`,
		Example: `  ` + name + ` run -- /home/runner/bin/Runner.Listener run
  ` + name + ` run --shared-dir /tmp/pod -- bullpen dev runner
  ` + name + ` run --static --registration-dir /bullpen/registration --status-dir /bullpen/shared -- /home/runner/bin/Runner.Listener run`,
		Args: AnyArgs,
		Define: func(flags *flag.FlagSet) Run {
			shared, status := sharedFlag(flags), statusFlag(flags)
			idleStop := flags.Duration("idle-stop", 0, "timeout for stopping a static runner that has no job (default 15s)")
			jit := flags.String("jit-file", "", "file with the JIT configuration, in a mounted Secret of this pod")
			static := flags.Bool("static", false, "the runner registers itself, and runs one job after another")
			jobs := flags.String("job-dir", os.Getenv(podenv.JobDir), "volume that job containers share with the runner ($"+podenv.JobDir+")")
			registration := flags.String("registration-dir", "", "directory with the registration of a static runner, a mounted Secret")
			return func(ctx context.Context, args []string) error {
				switch {
				case *jit != "" && *static:
					return errors.New("--jit-file and --static exclude each other")
				case *static != (*registration != ""):
					return errors.New("--static and --registration-dir belong together: give both or neither")
				}
				file, err := *jit, error(nil)
				if file == "" && !*static {
					if file, err = shared(); err != nil {
						return err
					}
				}
				requests := "" // where a job can ask for containers, and not only build images
				if *jobs != "" && os.Getenv(courier.EnvPublicKey) != "" {
					requests = courier.Dir
					syscall.Umask(jobcontainer.Umask)
				}
				return agent.Supervise(ctx, agent.SuperviseOptions{
					JITFile: file, Given: *jit != "", RegistrationDir: *registration,
					StatusDir: *status, JobDir: *jobs, CourierDir: requests, Command: args, Environ: os.Environ(), IdleStop: *idleStop,
					CAFile: os.Getenv(podenv.CAFile), AwaitSocket: os.Getenv(podenv.AwaitSocket),
					Hidden: []string{podenv.TokenFile, podenv.DispatchURL, podenv.RunnerToken},
					Reap:   os.Getpid() == 1,
					Stdout: os.Stdout, Stderr: os.Stderr, Log: logger(),
				})
			}
		},
	}
}

func idleCommand(name string) Command {
	return Command{
		Use:   "idle",
		Short: "Run until the runner has a job",
		Long: `Waits in a container of its own, without CPU, and exits 0 when a job has started in the runner's container, or when the runner's
supervisor has exited. The kubelet reports the exit, and so the pod shows that it is busy.

TERM or INT ends it only while no supervisor runs, because a runner whose pod is being deleted may still be assigned a job.`,
		Example: "  " + name + " idle --shared-dir /bullpen/shared",
		Define: func(flags *flag.FlagSet) Run {
			shared := sharedFlag(flags)
			return func(ctx context.Context, _ []string) error {
				file, err := shared()
				if err != nil {
					return err
				}
				return agent.Idle(ctx, agent.IdleOptions{JITFile: file, Log: logger()})
			}
		},
	}
}

func readyCommand(name string) Command {
	return Command{
		Use:     "ready",
		Short:   "Exit 0 while the runner has no job (readiness probe of its container)",
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
		Use:      "install --to FILE [FILE…]",
		Short:    "Copy this program into the shared volume, from which the pod's other containers start it",
		Example:  "  " + name + " install --to /bullpen/shared/bullpen-agent",
		Required: []string{"to"},
		Args:     AnyArgs,
		Define: func(flags *flag.FlagSet) Run {
			to := flags.String("to", "", "file to write")
			hook := flags.String("container-hook", "", "script to write by which GitHub's runner calls that program for a job's containers")
			buildx := flags.String("buildx-config", "", "configuration directory of docker buildx to write, with the builder "+jobcontainer.BuildxBuilder)
			host := flags.String("buildkit-host", "", "address of that builder")
			return func(_ context.Context, more []string) error {
				for _, file := range append([]string{*to}, more...) {
					if err := agent.Install(file); err != nil {
						return err
					}
				}
				if *buildx != "" {
					if err := agent.InstallBuilder(*buildx, jobcontainer.BuildxBuilder, *host); err != nil {
						return err
					}
				}
				if *hook == "" {
					return nil
				}
				return agent.InstallContainerHook(*hook, *to)
			}
		},
	}
}
