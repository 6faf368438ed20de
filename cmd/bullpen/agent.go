package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/agent"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// newAgentCommand is what runs inside a runner pod. The pod template starts it; people rarely do.
func newAgentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "What runs inside a runner pod: poller, supervisor, readiness probe, installer, the guest's part of a virtual machine",
		Example: `  bullpen agent install --to /bullpen/shared/bullpen
  bullpen agent poll
  bullpen agent run -- /home/runner/bin/Runner.Listener run`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newAgentPollCommand(), newAgentRunCommand(), newAgentReadyCommand(), newAgentInstallCommand(),
		newAgentGuestCommand())
	return cmd
}

// agentLog writes to stderr, where a container's log is read. It never sees a token or a configuration.
func agentLog() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

// statusFlag adds --status-dir.
func statusFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("status-dir", os.Getenv(runnerpod.EnvStatusDir),
		"folder of the supervisor's signs, where it may not write into the shared one ($"+runnerpod.EnvStatusDir+")")
}

// sharedFlag adds --shared-dir and returns how to name the file of the configuration in it.
func sharedFlag(cmd *cobra.Command) func() (string, error) {
	dir := cmd.Flags().String("shared-dir", os.Getenv(runnerpod.EnvSharedDir),
		"folder that poller and runner share ($"+runnerpod.EnvSharedDir+")")
	return func() (string, error) {
		if *dir == "" {
			return "", fmt.Errorf("the shared folder is not named: set $%s or --shared-dir", runnerpod.EnvSharedDir)
		}
		return filepath.Join(*dir, runnerpod.FileJIT), nil
	}
}

func newAgentPollCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "poll",
		Short: "Trade the pod's token for one JIT configuration, stage it, acknowledge, exit",
		Long: `Asks the server for work until there is an answer, and stages it in the shared folder (mode 0600, by rename).
Exit 0: an answer is staged; 1: the token is not accepted, or staging failed; 143: stopped before an answer.

The runner's container must be able to read that file: run both containers as one user, or this one as root, which
gives the file to the shared folder's owner or to --runner-uid.`,
		Example: `  BULLPEN_DISPATCH_URL=http://bullpen-dispatch.bullpen-system.svc BULLPEN_TOKEN_FILE=/bullpen/token/token \
    BULLPEN_SHARED_DIR=/bullpen/shared bullpen agent poll`,
		Args: cobra.NoArgs,
	}
	shared, status := sharedFlag(cmd), statusFlag(cmd)
	flags := cmd.Flags()
	url := flags.String("dispatch-url", os.Getenv(runnerpod.EnvDispatchURL), "the server ($"+runnerpod.EnvDispatchURL+")")
	token := flags.String("token-file", os.Getenv(runnerpod.EnvTokenFile),
		"the pod's projected token, read again at every request ($"+runnerpod.EnvTokenFile+")")
	uid := flags.Int("runner-uid", -1, "user that the staged file is given to (only root can)")
	gid := flags.Int("runner-gid", -1, "group that the staged file is given to")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		file, err := shared()
		if err != nil {
			return err
		}
		return agent.Poll(cmd.Context(), agent.PollOptions{
			URL: *url, TokenFile: *token, JITFile: file, StatusDir: *status, RunnerUID: *uid, RunnerGID: *gid, Log: agentLog(),
		})
	}
	return cmd
}

func newAgentRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run -- COMMAND [ARGUMENT…]",
		Short: "Wait for the JIT configuration, run the runner once with it, exit with its code",
		Long: `Waits in the runner's container for the staged configuration and starts the runner once, with the configuration in
ACTIONS_RUNNER_INPUT_JITCONFIG. Exits with the runner's own code, 128 + signal when it was killed.

TERM or INT: exits 0 at once while it waits; stops a runner that has no job; lets a job that has started finish.

Self-registering runners: with --jit-file the configuration is a file of a mounted Secret, which stays. With --static the runner
registers itself with what --registration-dir holds (files url, name, labels, group, work-folder, and token, which is waited
for), by "COMMAND configure --unattended" with all of it in ACTIONS_RUNNER_INPUT_ variables, and then takes one job after the
other; at TERM its job is its last. Both need --status-dir, and start nothing a second time in one pod: they wait for TERM.`,
		Example: `  bullpen agent run -- /home/runner/bin/Runner.Listener run
  bullpen agent run --shared-dir /tmp/pod -- bullpen dev runner
  bullpen agent run --static --registration-dir /bullpen/registration --status-dir /bullpen/shared -- /home/runner/bin/Runner.Listener run`,
		Args: cobra.ArbitraryArgs,
	}
	shared, status := sharedFlag(cmd), statusFlag(cmd)
	flags := cmd.Flags()
	idleStop := flags.Duration("idle-stop", 0, "how long a runner without a job may take to stop (default 15s)")
	jit := flags.String("jit-file", "", "the configuration, in a Secret that is mounted for this pod alone")
	static := flags.Bool("static", false, "the runner registers itself, and takes one job after the other")
	registration := flags.String("registration-dir", "", "what a static runner registers itself with: a mounted Secret")
	cmd.MarkFlagsMutuallyExclusive("jit-file", "static")
	cmd.MarkFlagsMutuallyExclusive("jit-file", "shared-dir")
	cmd.MarkFlagsMutuallyExclusive("static", "shared-dir")
	cmd.MarkFlagsRequiredTogether("static", "registration-dir")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := *jit, error(nil)
		if file == "" && !*static {
			if file, err = shared(); err != nil {
				return err
			}
		}
		return agent.Supervise(cmd.Context(), agent.SuperviseOptions{
			JITFile: file, Given: *jit != "", RegistrationDir: *registration,
			StatusDir: *status, Command: args, Environ: os.Environ(), IdleStop: *idleStop,
			Hidden: []string{runnerpod.EnvTokenFile, runnerpod.EnvDispatchURL, runnerpod.EnvRunnerToken},
			Reap:   os.Getpid() == 1,
			Stdout: os.Stdout, Stderr: os.Stderr, Log: agentLog(),
		})
	}
	return cmd
}

func newAgentReadyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ready",
		Short:   "Readiness probe of the runner's container: exit 0 while no job is known of in it",
		Example: "  bullpen agent ready\n  bullpen agent ready --status-dir /bullpen/shared",
		Args:    cobra.NoArgs,
	}
	shared, status := sharedFlag(cmd), statusFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		file, err := shared()
		if err != nil && *status == "" {
			return err
		}
		return agent.Ready(file, *status)
	}
	return cmd
}

func newAgentInstallCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "install --to FILE",
		Short:   "Put this binary into the shared volume, from where both containers start it",
		Example: "  bullpen agent install --to /bullpen/shared/bullpen",
		Args:    cobra.NoArgs,
	}
	to := cmd.Flags().String("to", "", "file to write")
	_ = cmd.MarkFlagRequired("to") // fails for an unknown flag only
	cmd.RunE = func(*cobra.Command, []string) error { return agent.Install(*to) }
	return cmd
}
