package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/lib/credential"
)

// registeringFlags are the part of the controller's command line that is about runners that register themselves.
type registeringFlags struct {
	enabled bool
	url     string
	appID   int64
	keyFile string
	points  int
}

func (f *registeringFlags) register(set *pflag.FlagSet) {
	set.BoolVar(&f.enabled, "self-registering", false, "look after Runners, RunnerReplicaSets, RunnerDeployments and RunnerSets, too")
	set.StringVar(&f.url, "github-url", github.DefaultBaseURL, "GitHub's API, for them; for an Enterprise Server https://HOST/api/v3")
	set.Int64Var(&f.appID, "github-app-id", 0, "id of the GitHub App that registers runners without credentials of their own; 0: there is none")
	set.StringVar(&f.keyFile, "github-private-key-file", "", "the App's private key (PEM); read again when it changes")
	set.IntVar(&f.points, "github-points-per-minute", 0, "most points a minute that are spent at GitHub with one set of credentials (default 900 at "+github.DefaultBaseURL+"; -1: no limit)")
}

// prepare makes the App's client. Without --self-registering it is nil.
func (f *registeringFlags) prepare(ctx context.Context, registry prometheus.Registerer, log *slog.Logger) (*controller.SelfRegisteringOptions, error) {
	if !f.enabled {
		return nil, nil
	}
	if (f.appID == 0) != (f.keyFile == "") {
		return nil, errors.New("--github-app-id and --github-private-key-file belong together: give both, or neither where every runner names credentials of its own")
	}
	metrics, err := github.NewMetrics(registry)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of GitHub's client: %w", err)
	}
	o := &controller.SelfRegisteringOptions{GitHub: github.Options{BaseURL: f.url, Points: f.points, Metrics: metrics, Log: log}}
	if f.appID == 0 {
		return o, nil
	}
	key, err := os.ReadFile(f.keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the App's private key (--github-private-key-file): %w", err)
	}
	app := o.GitHub
	app.AppID, app.PrivateKey, app.Registerer = f.appID, key, registry
	if o.App, err = github.New(app); err != nil {
		return nil, err
	}
	kept, err := credential.New(credential.Options{Log: log, Metrics: registry, Sources: []credential.Source{{
		Name: "github_private_key", Files: []credential.File{{Path: f.keyFile}},
		Use: func(ctx context.Context, contents [][]byte) error { return o.App.UseKey(ctx, contents[0]) },
	}}})
	if err != nil {
		return nil, err
	}
	if err := kept.Start(ctx); err != nil {
		return nil, err
	}
	o.Keep = kept.Run
	return o, nil
}
