//go:build !production

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
)

// runsError exits with the result of the workflows.
type runsError struct {
	code int
	text string
}

func (e runsError) Error() string { return e.text }

// ExitCode tells failures from cancellations.
func (e runsError) ExitCode() int { return e.code }

// oneboxFlags are what up and demo have in common.
type oneboxFlags struct {
	stateDir, assets string
	runners          int
	json             bool
	policies         bool
	secretsFile      string
	containers       bool
}

type upFlags struct {
	oneboxFlags
	poolFile             string
	macos                bool
	macHosts             string
	workflows            []string
	exitWhenDone         bool
	listen, githubListen string
	app                  onebox.App
	webhooks             string
	auditLog             string
	traces               traceConfig
	drain                bool
	installService       bool
}

const upLong = `Start Bullpen on this machine: a real Kubernetes control plane, a private PostgreSQL, a local stand-in for GitHub, and
the server, the controller and the node agent of production, each as its own process with least privilege. Only GitHub
is simulated. Runners are plain processes: they are NOT isolated from this machine, so run only workflows that you trust.

With --containers (Linux, root), runners are containers on a kubelet, with the chart's network policies enforced. Images come from a registry, or
from files ("bullpen images load"). The default pool runs an image that is made of this machine's programs, or, with --github-app, GitHub's own.

All state is in one state directory, reused by the next start. Ctrl-C stops everything, running jobs included; with --drain,
it waits for them first, and a second Ctrl-C does not. If
` + "`bullpen up`" + ` was killed, the next one, or ` + "`bullpen down`" + `, stops what is left.

With --workflow and --exit-when-done it runs the workflows, stops, and exits with their result.

With $BULLPEN_DATABASE_URL it uses that database instead of a private PostgreSQL. If that URL is a connection pooler's,
$BULLPEN_LISTEN_DATABASE_URL is PostgreSQL's own.

Exit codes: 0 stopped, or all workflows succeeded, 1 it failed, 2 a workflow failed, 3 none failed and one was cancelled.`

const upExample = `  # Start, and run a workflow
  bullpen up --workflow .github/workflows/ci.yaml

  # Run it once, and exit with its result
  bullpen up --workflow .github/workflows/ci.yaml --exit-when-done

  # With secrets: lines of NAME=VALUE
  bullpen up --secrets-file secrets.env --workflow .github/workflows/ci.yaml

  # A pool of your own
  bullpen up --pool-file examples/pool.yaml

  # With a stand-in for a Mac, for jobs with runs-on: bullpen-macos
  bullpen up --macos --workflow examples/macos.yaml

  # A real GitHub App instead of the stand-in; its webhooks must reach --listen
  bullpen up --listen 127.0.0.1:8080 --github-app 12345 \
    --github-private-key-file app.pem --webhook-secret-file secret

  # The same for a machine that GitHub cannot reach: webhooks are polled, and no secret is needed
  bullpen up --webhooks=poll --github-app 12345 --github-private-key-file app.pem

  # Runners in containers
  sudo bullpen up --containers

  # A small fleet on one Linux machine, as a service of systemd
  sudo bullpen up --containers --webhooks=poll --github-app 12345 --github-private-key-file app.pem --install-service

  # For scripts: one JSON object per line
  bullpen up --json`

func newUpCommand() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start Bullpen on this machine",
		Long:  upLong, Example: upExample,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return err
			}
			if f.installService {
				return installService(cmd, opts)
			}
			if f.drain {
				opts.Drain, opts.AtOnce = true, secondSignal(cmd.Context())
			}
			opts.Report = onebox.NewPrinter(cmd.OutOrStdout(), f.json).Report
			result, err := onebox.Up(cmd.Context(), opts)
			if err != nil {
				return err
			}
			if code := result.ExitCode(); code != 0 {
				return runsError{code, result.String()}
			}
			return nil
		},
	}
	f.registerUp(cmd)
	cmd.MarkFlagsMutuallyExclusive("pool-file", "runners")
	return cmd
}

// registerUp adds the flags of up.
func (f *upFlags) registerUp(cmd *cobra.Command) {
	f.register(cmd, 0)
	flags := cmd.Flags()
	flags.StringVar(&f.poolFile, "pool-file", "", "YAML file of RunnerPools to create (default: one pool with the label bullpen)")
	flags.BoolVar(&f.drain, "drain", false, "before stopping, wait for running jobs; a second Ctrl-C, or bullpen down --now, stops at once")
	flags.BoolVar(&f.installService, "install-service", false, "write a systemd unit that runs this command with --drain, print what to do next, and exit")
	flags.BoolVar(&f.macos, "macos", false, "add a node that stands in for a Mac, and a pool with the label bullpen-macos: its virtual machines are processes of a fake Tart")
	flags.StringVar(&f.macHosts, "mac-hosts", "", "prepare the Macs of MacHosts; they are models with their files in this directory (bullpen dev mac)")
	_ = flags.MarkHidden("mac-hosts") // fails only for a flag that does not exist
	flags.StringArrayVar(&f.workflows, "workflow", nil, "workflow file to run at the stand-in (can be repeated)")
	flags.BoolVar(&f.exitWhenDone, "exit-when-done", false, "with --workflow: stop when the workflows have completed, and exit with their result")
	flags.StringVar(&f.listen, "listen", "", "address for webhooks (default: a free port on 127.0.0.1)")
	flags.StringVar(&f.githubListen, "github-listen", "", "address of the stand-in (default: a free port on 127.0.0.1)")
	flags.Int64Var(&f.app.ID, "github-app", 0, "ID of a real GitHub App to use instead of the stand-in")
	flags.StringVar(&f.app.KeyFile, "github-private-key-file", "", "the App's private key (PEM)")
	flags.StringVar(&f.app.SecretFile, "webhook-secret-file", "", "file with the App's webhook secret")
	flags.StringVar(&f.app.URL, "github-url", "", "URL of GitHub or of its API (default: https://github.com)")
	flags.StringVar(&f.webhooks, "webhooks", webhooksPush, "push: GitHub delivers webhooks to this machine; poll: they are read from GitHub's list of deliveries")
	flags.StringVar(&f.auditLog, "audit-log", "", "Kubernetes audit log file (not rotated)")
	flags.StringVar(&f.traces.endpoint, "trace-endpoint", "", "URL of an OpenTelemetry collector for traces of jobs, such as http://localhost:4318")
	flags.StringVar(&f.traces.link, "trace-link", "", "URL of the page of a trace, with {trace_id} in it")
}

func (f *oneboxFlags) register(cmd *cobra.Command, runners int) {
	flags := cmd.Flags()
	flags.StringVar(&f.stateDir, "state-dir", "", "state directory (default: $XDG_STATE_HOME/bullpen/onebox for bullpen up, a temporary one for bullpen demo)")
	flags.StringVar(&f.assets, "assets", "", "directory of the control plane's executables (default: those of make devcluster)")
	commandline.AtLeast(flags, &f.runners, "runners", 0, runners, "number of runners of the default pool")
	flags.BoolVar(&f.json, "json", false, "print one JSON object per line")
	flags.StringVar(&f.secretsFile, "secrets-file", "", "file with the secrets of workflows, one NAME=VALUE per line; values are masked in logs")
	flags.BoolVar(&f.containers, "containers", false, "run runners in containers, on a kubelet in namespaces of this machine (Linux, root)")
	flags.BoolVar(&f.policies, "network-policies", true, "enforce the chart's network policies between runners and the server")
}

func (f upFlags) options() (onebox.UpOptions, error) {
	var opts onebox.UpOptions
	var err error
	if f.app != (onebox.App{}) {
		opts.App = &f.app
		if f.app.URL, err = githubAPI(f.app.URL); err != nil {
			return opts, err
		}
	}
	if opts.StateDir, err = stateDir(f.stateDir); err != nil {
		return opts, err
	}
	if f.webhooks != webhooksPush && f.webhooks != webhooksPoll {
		return opts, fmt.Errorf("--webhooks must be push (GitHub can reach this machine) or poll (it cannot), got %q", f.webhooks)
	}
	opts.Poll = f.webhooks == webhooksPoll
	if f.exitWhenDone && len(f.workflows) == 0 {
		return opts, errors.New("--exit-when-done needs --workflow")
	}
	opts.ExitWhenDone = f.exitWhenDone
	opts.Containers = f.containers
	if f.containers && f.poolFile == "" {
		opts.Pools, err = onebox.ContainerPools(f.runners, opts.App != nil)
	} else {
		opts.Pools, err = onebox.LoadPools(f.poolFile, f.runners)
	}
	if err != nil {
		return opts, err
	}
	if f.macos {
		opts.Macs = true
		if f.poolFile == "" { // a file of pools has those of platform macos too
			macs, err := onebox.MacPool()
			if err != nil {
				return opts, err
			}
			opts.Pools = append(opts.Pools, macs...)
		}
	}
	if opts.SecretsFile, err = onebox.CheckSecrets(f.secretsFile); err != nil {
		return opts, err
	}
	if f.secretsFile != "" && opts.App != nil {
		return opts, errors.New("--secrets-file needs the GitHub stand-in, and --github-app uses the real GitHub. Set the secrets of the repository instead")
	}
	opts.MacHosts, opts.AuditLog = f.macHosts, f.auditLog
	opts.TraceEndpoint, opts.TraceLink = f.traces.endpoint, f.traces.link
	if opts.Workflows, err = onebox.LoadWorkflows(f.workflows); err != nil {
		return opts, err
	}
	opts.Assets, opts.Listen, opts.GitHubListen, opts.Ungated = f.assets, f.listen, f.githubListen, !f.policies
	opts.DatabaseURL, opts.ListenDatabaseURL = os.Getenv(envDatabaseURL), os.Getenv(envListenDatabaseURL)
	return opts, nil
}

// stateDir is the given directory, or the default.
func stateDir(asked string) (string, error) {
	if asked != "" {
		return asked, nil
	}
	return onebox.DefaultStateDir(os.Getenv, os.Geteuid() == 0)
}
