//go:build !production

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
)

// jitVariable is where GitHub's own runner looks for its JIT config.
const jitVariable = "ACTIONS_RUNNER_INPUT_JITCONFIG"

func newDevRunnerCommand() *cobra.Command {
	var blob, file, work string
	var verbose bool
	var gap time.Duration
	cmd := &cobra.Command{
		Use:   "runner",
		Short: "Run one job of a JIT config, or the jobs of a registered runner (development only)",
		Long: `Run the steps of one job of a JIT config, like GitHub's own runner.

For the one-machine mode and for tests. It runs the job's ` + "`run:`" + ` steps with bash or sh, and actions of the workspace. It
isolates nothing: a step is a process of this user, with this user's files. Production pods run GitHub's own runner.

Containers of jobs, services and container actions are run by the hook that $ACTIONS_RUNNER_CONTAINER_HOOKS names, a file
*.sh that is called as GitHub's runner calls it. Without a hook, a job with containers fails.

A runner that was registered by "configure" in the directory --work runs one job after the other, each in its own process.

The JIT config comes from --jitconfig-file, from --jitconfig, or from $` + jitVariable + `.
Other users of the machine can read a command line: prefer the file.

Exit codes are those of GitHub's listener: 0 after the job (whatever its conclusion) or after a signal, 1 if the
registration was deleted or is unusable, 2 if a retry makes sense, 5 if another process has the session. A version that
the service rejects is 7 with $ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE=true, and otherwise 1. SIGINT and SIGTERM stop an idle runner at once and cancel a running job.

$ACTIONS_RUNNER_HOOK_JOB_STARTED and $ACTIONS_RUNNER_HOOK_JOB_COMPLETED name scripts to run around the job.`,
		Example: `  # What a runner pod does
  bullpen dev runner --jitconfig-file /run/bullpen/jit --work /home/runner

  # By hand, against a stand-in
  ` + jitVariable + `="$(cat jit)" bullpen dev runner`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := devrunner.Options{WorkDir: work, WorkerAfter: gap, Console: cmd.OutOrStdout(), Log: devRunnerLog(cmd, verbose)}
			jit, err := readJIT(file, blob)
			switch {
			case err == nil:
				options.JIT = jit
			case file == "" && blob == "" && configured(work):
				options.Root, options.Worker = work, []string{"dev", "runner", "worker"}
			default:
				return &devrunner.ExitError{Code: devrunner.ExitTerminated, Err: err}
			}
			runner, err := devrunner.New(options)
			if err != nil {
				return err
			}
			return runner.Run(cmd.Context())
		},
	}
	cmd.AddCommand(newDevRunnerConfigureCommand(&work), newDevRunnerWorkerCommand(&verbose))
	cmd.Flags().StringVar(&file, "jitconfig-file", "", "file with the JIT config")
	cmd.Flags().DurationVar(&gap, "worker-after", 0, "delay between acquiring a job and starting its worker; a stop in between loses the job, as with GitHub's runner")
	cmd.Flags().StringVar(&blob, "jitconfig", "", "the JIT config itself (visible to other users of the machine)")
	cmd.PersistentFlags().StringVar(&work, "work", ".", "the runner's directory, which its work directory is relative to")
	cmd.PersistentFlags().BoolVarP(&verbose, "verbose", "v", false, "log the protocol")
	cmd.MarkFlagsMutuallyExclusive("jitconfig", "jitconfig-file")
	return cmd
}

func devRunnerLog(cmd *cobra.Command, verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
}

// configured reports whether a runner was registered in the directory.
func configured(root string) bool {
	_, err := os.Lstat(filepath.Join(root, ".runner"))
	return err == nil
}

func newDevRunnerConfigureCommand(work *string) *cobra.Command {
	bare := false
	cmd := &cobra.Command{
		Use:   "configure --unattended",
		Short: "Register a runner that runs one job after the other",
		Long: `Register a runner with GitHub like GitHub's own, and write .runner, .credentials and .credentials_rsaparams into --work.

It is not interactive: the registration is in $ACTIONS_RUNNER_INPUT_URL, _TOKEN and _NAME, and optionally in _LABELS, _RUNNERGROUP, _WORK,
_REPLACE, _EPHEMERAL and _DISABLEUPDATE.`,
		Example: `  ACTIONS_RUNNER_INPUT_URL=http://127.0.0.1:8090/acme ACTIONS_RUNNER_INPUT_TOKEN=… ACTIONS_RUNNER_INPUT_NAME=one \
    bullpen dev runner --work /tmp/one configure --unattended
  bullpen dev runner --work /tmp/one`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := devrunner.Configure(cmd.Context(), devrunner.ConfigureOptions{Root: *work, Environ: os.Environ(), NoDefaultLabels: bare})
			if err != nil {
				return &devrunner.ExitError{Code: devrunner.ExitTerminated, Err: err}
			}
			fmt.Fprintln(cmd.OutOrStdout(), "√ Runner successfully added")
			return nil
		},
	}
	cmd.Flags().BoolVar(&bare, "no-default-labels", false, "register only the labels of $ACTIONS_RUNNER_INPUT_LABELS, without self-hosted and the system's")
	cmd.Flags().Bool("unattended", false, "for compatibility with GitHub's runner; it is never interactive")
	return cmd
}

func newDevRunnerWorkerCommand(verbose *bool) *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Run the job of standard input",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return devrunner.RunWorker(cmd.Context(), cmd.InOrStdin(), devrunner.Options{
				Console: cmd.OutOrStdout(), Log: devRunnerLog(cmd, *verbose),
			})
		},
	}
}

// maxJITFile is more than any JIT config has, in bytes.
const maxJITFile = 1 << 20

func readJIT(file, blob string) (string, error) {
	if file == "" {
		if blob == "" {
			blob = os.Getenv(jitVariable)
		}
		if blob == "" {
			return "", errors.New("no JIT config: set --jitconfig-file or $" + jitVariable)
		}
		return blob, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("reading the JIT config: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJITFile))
	if err != nil {
		return "", fmt.Errorf("reading the JIT config: %w", err)
	}
	return string(data), nil
}
