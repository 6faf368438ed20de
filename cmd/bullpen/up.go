//go:build !production

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
)

// oneboxFlags are what up and demo have in common.
type oneboxFlags struct {
	stateDir, assets string
	runners          int
	json             bool
	policies         bool
}

type upFlags struct {
	oneboxFlags
	poolFile             string
	macos                bool
	macHosts             string
	workflows            []string
	listen, githubListen string
	app                  onebox.App
	webhooks             string
	auditLog             string
	traces               traceConfig
}

func newUpCommand() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start all of Bullpen on this machine",
		Long: `Start all of Bullpen on this machine: a real Kubernetes control plane, a private PostgreSQL, a local stand-in for
GitHub, and the server, the controller and the node agent that production runs, each as a process of its own with the
rights of its own. Nothing is simulated but GitHub itself, and runners are plain processes: they are NOT isolated from
this machine, so run only workflows that you trust.

Everything is kept in one state folder, which is taken up again by the next start. Ctrl-C stops everything, running
jobs included, and leaves no process behind. What a killed ` + "`bullpen up`" + ` leaves behind is ended by the next one, or
by ` + "`bullpen down`" + `.

With $BULLPEN_DATABASE_URL set, that database is used instead of a private PostgreSQL ($BULLPEN_LISTEN_DATABASE_URL
leads to PostgreSQL itself if the first leads through a connection pooler).`,
		Example: `  # Start, and run a workflow
  bullpen up --workflow .github/workflows/ci.yaml

  # A pool of your own
  bullpen up --pool-file examples/pool.yaml

  # With a stand-in for a Mac beside this machine's own node, for jobs that run on bullpen-macos
  bullpen up --macos --workflow examples/macos.yaml

  # A real GitHub App instead of the stand-in; its webhooks must reach the address of --listen
  bullpen up --listen 127.0.0.1:8080 --github-app 12345 \
    --github-private-key-file app.pem --webhook-secret-file secret

  # The same for a machine that GitHub cannot reach: nothing is delivered, and no secret is needed
  bullpen up --webhooks=poll --github-app 12345 --github-private-key-file app.pem

  # For scripts: one JSON object per line
  bullpen up --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return err
			}
			opts.Report = onebox.NewPrinter(cmd.OutOrStdout(), f.json).Report
			return onebox.Up(cmd.Context(), opts)
		},
	}
	f.register(cmd, 0)
	flags := cmd.Flags()
	flags.StringVar(&f.poolFile, "pool-file", "", "YAML file of RunnerPools to make (default: one pool with the label bullpen)")
	flags.BoolVar(&f.macos, "macos", false, "add a node that stands in for a Mac, and a pool with the label bullpen-macos: its virtual machines are processes, made by a fake of Tart")
	flags.StringVar(&f.macHosts, "mac-hosts", "", "prepare the Macs that MacHosts name; they are models, whose files lie in this folder (bullpen dev mac)")
	_ = flags.MarkHidden("mac-hosts") // fails only for a flag that does not exist
	flags.StringArrayVar(&f.workflows, "workflow", nil, "workflow file to run at the stand-in (may be repeated)")
	flags.StringVar(&f.listen, "listen", "", "address for webhooks (default: a free port on 127.0.0.1)")
	flags.StringVar(&f.githubListen, "github-listen", "", "address of the stand-in (default: a free port on 127.0.0.1)")
	flags.Int64Var(&f.app.ID, "github-app", 0, "id of a real GitHub App to use instead of the stand-in")
	flags.StringVar(&f.app.KeyFile, "github-private-key-file", "", "the App's private key (PEM)")
	flags.StringVar(&f.app.SecretFile, "webhook-secret-file", "", "file that holds the App's webhook secret")
	flags.StringVar(&f.app.URL, "github-url", "", "GitHub's web address or its API (default: github.com's)")
	flags.StringVar(&f.webhooks, "webhooks", webhooksPush, "push: GitHub delivers to this machine; poll: its list of deliveries is read")
	flags.StringVar(&f.auditLog, "audit-log", "", "file to which the API server writes who of Bullpen's parts and nodes asked it for what (it grows without bound)")
	flags.StringVar(&f.traces.endpoint, "trace-endpoint", "", "URL of an OpenTelemetry collector that the server sends jobs' traces to, like http://localhost:4318")
	flags.StringVar(&f.traces.link, "trace-link", "", "URL of the page that shows a trace, with {trace_id} in it")
	cmd.MarkFlagsMutuallyExclusive("pool-file", "runners")
	return cmd
}

func (f *oneboxFlags) register(cmd *cobra.Command, runners int) {
	flags := cmd.Flags()
	flags.StringVar(&f.stateDir, "state-dir", "", "state folder (default: bullpen up: $XDG_STATE_HOME/bullpen/onebox; bullpen demo: a temporary one)")
	flags.StringVar(&f.assets, "assets", "", "folder of control plane executables (default: found as 'make devcluster' leaves them)")
	flags.IntVar(&f.runners, "runners", runners, "number of warm runners to keep")
	flags.BoolVar(&f.json, "json", false, "print one JSON object per line")
	flags.BoolVar(&f.policies, "network-policies", true, "hold runners to the chart's network policies on their way to the server")
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
		return opts, fmt.Errorf("--webhooks=%s is not known: use push if GitHub can reach this machine, or poll if it cannot", f.webhooks)
	}
	opts.Poll = f.webhooks == webhooksPoll
	if f.runners < 0 {
		return opts, errors.New("--runners cannot be negative: give the number of warm runners to keep")
	}
	if opts.Pools, err = onebox.LoadPools(f.poolFile, f.runners); err != nil {
		return opts, err
	}
	if f.macos {
		opts.Macs = true
		if f.poolFile == "" { // whoever brings pools brings those of platform macos, too
			macs, err := onebox.MacPool()
			if err != nil {
				return opts, err
			}
			opts.Pools = append(opts.Pools, macs...)
		}
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

// stateDir is the folder asked for, or the default.
func stateDir(asked string) (string, error) {
	if asked != "" {
		return asked, nil
	}
	return onebox.DefaultStateDir(os.Getenv, os.Geteuid() == 0)
}
