package agentcmd

import (
	"cmp"
	"context"
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/dockerfile/builder"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/run"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podenv"
)

func containerHookCommand(name string) Command {
	return Command{
		Use:   "container-hook",
		Short: "Run a job's containers for GitHub's runner (ACTIONS_RUNNER_CONTAINER_HOOKS)",
		Long: `Reads one command of GitHub's runner from standard input (prepare_job, run_script_step, run_container_step or cleanup_job), and writes
its response file. Standard output and standard error are the log of the step.

Exits with the exit code of the step, or with 1 after an error, which is in the log.`,
		Example: "  " + name + " container-hook < input.json",
		Define: func(flags *flag.FlagSet) Run {
			resources := flags.String("resources", os.Getenv(podenv.Resources), "the pool's resources, for messages, such as \"8 CPU, 16Gi\" ($"+podenv.Resources+")")
			return func(ctx context.Context, _ []string) error {
				signals := make(chan os.Signal, 8)
				signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
				defer signal.Stop(signals)
				shm, _ := strconv.ParseInt(os.Getenv(podenv.ShmSize), 10, 64) // 0 in pods without it
				host, _ := os.Hostname()                                      // is the pod's name, too
				broker := courier.Default()
				var maker run.Builder
				if _, err := os.Stat(jobcontainer.ActionsSocket); err == nil {
					maker = builder.NewClient(jobcontainer.ActionsSocket)
				}
				return run.Run(ctx, run.Options{
					Input: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), Signals: signals,
					Pod: cmp.Or(os.Getenv(podenv.PodName), host), Resources: *resources, ShmBytes: shm, Restricted: os.Getenv(podenv.JobProfile) == "Restricted",
					JobDir: jobcontainer.Dir, GitHubDir: jobcontainer.GitHubDir, PrivateDir: filepath.Join(courier.Dir, "hook"),
					WorkVolume: jobcontainer.RunnerWorkDir, Broker: broker, Builder: maker,
					Guard: func(container string) run.Guard { return client.New(jobcontainer.Socket(container)) },
				})
			}
		},
	}
}
