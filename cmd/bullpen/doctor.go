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

// doctorParts are what can be looked at by itself.
var doctorParts = []string{"github", "database", "cluster"}

// doctorConfig is what the command was told.
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

// reportError ends the command with the report's own code; what there is to say has been printed.
type reportError struct{ code int }

func (reportError) Error() string   { return "" }
func (e reportError) ExitCode() int { return e.code }

func newDoctorCommand() *cobra.Command {
	cfg := doctorConfig{conn: connection()}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong with a set-up, and say what to do about it",
		Long: `Looks at GitHub (the App's key, permissions, events and webhooks), at the database (reachable, its schema's version, its clock) and
at the cluster (definitions, rights of the server and the controller, whether a controller works, whether pods are taken, pools
and runners that something holds), and changes nothing. Each finding comes with its remedy.

A bullpen up of this machine is found by itself. For a cluster it looks with your own kubeconfig's rights, and asks GitHub and the
database with the server's own files, which are there in a server's pod. What it may not or cannot look at it says; that
never counts as being right.

Exit codes: 0 nothing is wrong (there may be warnings), 1 errors were found, 2 no error was found, but not everything could be
looked at.`,
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
	f.StringVar(&cfg.conn.Kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster (default: a bullpen up of this machine, else as kubectl)")
	f.StringVar(&cfg.conn.Context, "context", "", "context of the kubeconfig (default: its current one)")
	f.StringVar(&cfg.conn.StateDir, "state-dir", "", "state folder of bullpen up")
	f.DurationVar(&cfg.conn.Timeout, "request-timeout", cli.DoctorTimeout, "how long to wait for each answer")
	f.StringSliceVar(&cfg.only, "only", nil, "look only at these, separated by commas: "+strings.Join(doctorParts, ", "))
	cfg.github.register(f)
	f.Int64Var(&cfg.appID, "github-app-id", 0, "id of the GitHub App")
	f.StringVar(&cfg.keyFile, "github-private-key-file", "", "the App's private key (PEM)")
	f.StringVar(&cfg.webhooks, "webhooks", "push", "how the server gets webhooks: push or poll")
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

// look says what to look at, and why not at the rest.
func (cfg *doctorConfig) look(cmd *cobra.Command) (doctor.Look, error) {
	for _, part := range cfg.only {
		if !slices.Contains(doctorParts, part) {
			return doctor.Look{}, fmt.Errorf("--only %q: it is one of %s", part, strings.Join(doctorParts, ", "))
		}
	}
	if cfg.webhooks != "push" && cfg.webhooks != "poll" {
		return doctor.Look{}, errors.New("--webhooks is push or poll")
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
		return errors.New("--github-app-id and --github-private-key-file belong together: name both")
	case site.GitHub != "":
		access.URL, access.AppID, keyFile = site.GitHub, standInApp, site.KeyFile
	default:
		look.NoGitHub = "no App was named"
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
