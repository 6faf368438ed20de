//go:build !production

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/devrunner"
)

// jitVariable is where GitHub's own runner looks for its JIT config.
const jitVariable = "ACTIONS_RUNNER_INPUT_JITCONFIG"

func newDevRunnerCommand() *cobra.Command {
	var blob, file, work string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "runner",
		Short: "Take one job with a JIT config and run its steps (development only)",
		Long: `Take one job with a JIT config and run its steps, as GitHub's own runner would.

For the one-machine mode and for tests. It runs the job's ` + "`run:`" + ` steps with bash or sh and nothing else, and it
isolates nothing: a step is a process of this user, with this user's files. Production pods run GitHub's own runner.

The JIT config comes from --jitconfig-file, from --jitconfig, or from $` + jitVariable + `.
Other users of the machine can read a command line: prefer the file.

Exit codes are those of GitHub's listener: 0 after the job (whatever its conclusion) or when told to stop, 1 when the
registration is gone or unusable, 2 when it may be tried again, 5 when another process holds the session, 7 when the
service refuses this version. SIGINT and SIGTERM end an idle runner at once and cancel a running job.

$ACTIONS_RUNNER_HOOK_JOB_STARTED and $ACTIONS_RUNNER_HOOK_JOB_COMPLETED name scripts to run around the job.`,
		Example: `  # What a runner pod does
  bullpen dev runner --jitconfig-file /run/bullpen/jit --work /home/runner

  # By hand, against a stand-in
  ` + jitVariable + `="$(cat jit)" bullpen dev runner`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			jit, err := readJIT(file, blob)
			if err != nil {
				return &devrunner.ExitError{Code: devrunner.ExitTerminated, Err: err}
			}
			level := slog.LevelWarn
			if verbose {
				level = slog.LevelDebug
			}
			runner, err := devrunner.New(devrunner.Options{
				JIT: jit, WorkDir: work, Console: cmd.OutOrStdout(),
				Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})),
			})
			if err != nil {
				return err
			}
			return runner.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&file, "jitconfig-file", "", "file that holds the JIT config")
	cmd.Flags().StringVar(&blob, "jitconfig", "", "the JIT config itself (visible to other users of the machine)")
	cmd.Flags().StringVar(&work, "work", ".", "folder that the JIT config's work folder is relative to")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what the protocol does")
	cmd.MarkFlagsMutuallyExclusive("jitconfig", "jitconfig-file")
	return cmd
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
