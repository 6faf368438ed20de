package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/doctor"
)

// doctorParts are the values of --only.
var doctorParts = []string{"github", "database", "cluster"}

// doctorConfig is the command line of bullpen doctor.
type doctorConfig struct {
	conn     *cli.Connection
	format   cli.Format
	only     []string
	github   githubFlags
	appID    int64
	keyFile  string
	webhooks string
	database databaseConfig
	release  doctor.Installation
	outside  outsideConfig
}

// reportError exits with the report's own code; the report has been printed.
type reportError struct{ code int }

func (reportError) Error() string   { return "" }
func (e reportError) ExitCode() int { return e.code }

func newDoctorCommand() *cobra.Command {
	cfg := doctorConfig{conn: connection()}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find problems of an installation, and say how to fix them",
		Long: `Check GitHub (the App's key, permissions, events and webhooks), the database (connection, schema version, clock) and the cluster
(definitions, rights of the server and the controller, a running controller, admission of runner pods, pools and runners that
cannot be deleted). It changes nothing. Each finding comes with its remedy.

It finds a bullpen up of this machine. For a cluster it uses the rights of your own kubeconfig; for GitHub and the database it needs
the server's files, which a server's pod has. A check that cannot run is reported, and does not count as passed.

Exit codes: 0 no errors (there may be warnings), 1 errors were found, 2 no errors, but some checks could not run.`,
		Example: `  bullpen doctor
  bullpen doctor --kubeconfig admin.kubeconfig --github-app-id 12345 --github-private-key-file app.pem --database-url-file url
  bullpen doctor --only cluster --context production
  bullpen doctor -o json | jq -r '.findings[] | .code + ": " + .remedy'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look, err := cfg.look(cmd)
			if err != nil {
				return err
			}
			report := doctor.Examine(doctor.Gather(cmd.Context(), look))
			if err := cli.PrintReport(cmd.OutOrStdout(), cfg.format, report); err != nil {
				return err
			}
			if code := report.ExitCode(); code != doctor.ExitFine {
				return reportError{code}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.conn.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: a bullpen up of this machine, else same as kubectl)")
	f.StringVar(&cfg.conn.Context, "context", "", "context of the kubeconfig (default: its current context)")
	f.StringVar(&cfg.conn.StateDir, "state-dir", "", "state directory of bullpen up")
	f.DurationVar(&cfg.conn.Timeout, "request-timeout", cli.DoctorTimeout, "timeout of each request")
	f.StringSliceVar(&cfg.only, "only", nil, "check only these parts, separated by commas: "+strings.Join(doctorParts, ", "))
	cfg.github.register(f)
	f.Int64Var(&cfg.appID, "github-app-id", 0, "ID of the GitHub App")
	f.StringVar(&cfg.keyFile, "github-private-key-file", "", "the App's private key (PEM)")
	f.StringVar(&cfg.webhooks, "webhooks", "push", "how the server receives webhooks: push or poll")
	cfg.database.flags(f)
	f.StringVar(&cfg.release.SystemNamespace, "system-namespace", "bullpen-system", "namespace of the server and the controller")
	f.StringVar(&cfg.release.RunnerNamespace, "runner-namespace", "bullpen-runners", "namespace of runner pods and pools")
	cfg.outside.flags(f)
	cli.OutputFlag(f, &cfg.format)
	return cmd
}

func (cfg *doctorConfig) wants(part string) bool {
	return len(cfg.only) == 0 || slices.Contains(cfg.only, part)
}

// look says what to check, and why not the rest.
func (cfg *doctorConfig) look(cmd *cobra.Command) (doctor.Look, error) {
	for _, part := range cfg.only {
		if !slices.Contains(doctorParts, part) {
			return doctor.Look{}, fmt.Errorf("--only must be %s, got %q", strings.Join(doctorParts, ", "), part)
		}
	}
	if cfg.webhooks != "push" && cfg.webhooks != "poll" {
		return doctor.Look{}, fmt.Errorf("--webhooks must be push or poll, got %q", cfg.webhooks)
	}
	site, here, err := cfg.conn.Site()
	if err != nil {
		return doctor.Look{}, err
	}
	look := doctor.Look{Release: cfg.release, Timeout: cfg.conn.Timeout}
	if look.Outside, err = cfg.outside.runners(); err != nil {
		return look, err
	}
	if here && site.GitHub != "" && !cmd.Flags().Changed("github-hosted-labels") {
		look.Outside.GitHub = nil // the stand-in has no runners of GitHub's own
	}
	if cfg.wants("github") {
		if err := cfg.lookAtGitHub(cmd.Context(), &look, site); err != nil {
			return look, err
		}
	}
	if cfg.wants("database") {
		if here && cfg.database.urlFile == "" && os.Getenv(envDatabaseURL) == "" {
			cfg.database.urlFile = site.URLFile
		}
		if look.DatabaseURL, err = cfg.database.url(); err != nil {
			look.NoDatabase = err.Error()
		} else if look.ListenDatabaseURL, err = cfg.database.listenURL(look.DatabaseURL); err != nil {
			look.NoDatabase = err.Error()
		}
	}
	if cfg.wants("cluster") {
		kubeconfig := cfg.conn.Kubeconfig
		if here {
			kubeconfig, look.Release.ControllerURL = site.Kubeconfig, site.Controller
		}
		if look.Kubernetes, err = cfg.conn.Cluster(kubeconfig); err != nil {
			look.NoKubernetes = err.Error()
		}
	}
	return look, cmd.Context().Err()
}

// standInApp is the App of a bullpen up's stand-in.
const standInApp = 1

func (cfg *doctorConfig) lookAtGitHub(ctx context.Context, look *doctor.Look, site cli.Site) error {
	api, err := cfg.github.api()
	if err != nil {
		return err
	}
	access := doctor.GitHubAccess{URL: api, AppID: cfg.appID, Push: cfg.webhooks == "push"}
	keyFile := cfg.keyFile
	switch {
	case cfg.appID > 0 && keyFile != "":
	case cfg.appID > 0 || keyFile != "":
		return errors.New("--github-app-id and --github-private-key-file belong together: give both")
	case site.GitHub != "":
		access.URL, access.AppID, keyFile = site.GitHub, standInApp, site.KeyFile
	default:
		look.NoGitHub = "no App is configured"
		return nil
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		look.NoGitHub = fmt.Errorf("reading the App's private key: %w", err).Error()
		return nil
	}
	access.Key = key
	if access.Transport, _, err = cfg.github.trust(ctx); err != nil {
		look.NoGitHub = err.Error()
		return nil //nolint:nilerr // reported as unchecked
	}
	look.GitHub = &access
	return nil
}
