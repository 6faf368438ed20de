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
	github  githubFlags
	appID   int64
	keyFile string
	points  int
}

func (f *registeringFlags) register(set *pflag.FlagSet) {
	set.BoolVar(&f.enabled, "self-registering", false, "also reconcile Runners, RunnerReplicaSets, RunnerDeployments and RunnerSets")
	f.github.register(set)
	set.Int64Var(&f.appID, "github-app-id", 0, "ID of the GitHub App that registers runners without their own credentials; 0: none")
	set.StringVar(&f.keyFile, "github-private-key-file", "", "the App's private key (PEM); reloaded when it changes")
	set.IntVar(&f.points, "github-points-per-minute", 0, "request quota at GitHub of one set of credentials, in points per minute (default 900 at "+github.DefaultBaseURL+"; -1: unlimited)")
}

// prepare makes the App's client. Without --self-registering it is nil.
func (f *registeringFlags) prepare(ctx context.Context, registry prometheus.Registerer, log *slog.Logger) (*controller.SelfRegisteringOptions, error) {
	if !f.enabled {
		return nil, nil
	}
	if (f.appID == 0) != (f.keyFile == "") {
		return nil, errors.New("--github-app-id and --github-private-key-file belong together: give both, or neither if all runners have their own credentials")
	}
	api, err := f.github.api()
	if err != nil {
		return nil, err
	}
	transport, sources, err := f.github.trust(ctx)
	if err != nil {
		return nil, err
	}
	metrics, err := github.NewMetrics(registry)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of GitHub's client: %w", err)
	}
	o := &controller.SelfRegisteringOptions{GitHub: github.Options{BaseURL: api, Points: f.points, Transport: transport, Metrics: metrics, Log: log}}
	if f.appID != 0 {
		app, err := f.app(o.GitHub, registry)
		if err != nil {
			return nil, err
		}
		o.App = app
		sources = append(sources, credential.Source{
			Name: "github_private_key", Files: []credential.File{{Path: f.keyFile}},
			Use: func(ctx context.Context, contents [][]byte) error { return app.UseKey(ctx, contents[0]) },
		})
	}
	if len(sources) == 0 {
		return o, nil
	}
	kept, err := credential.New(credential.Options{Log: log, Metrics: registry, Sources: sources})
	if err != nil {
		return nil, err
	}
	if err := kept.Start(ctx); err != nil {
		return nil, err
	}
	o.Keep = kept.Run
	return o, nil
}

// app is the client of the installation's own App.
func (f *registeringFlags) app(common github.Options, registry prometheus.Registerer) (*github.Client, error) {
	key, err := os.ReadFile(f.keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the App's private key (--github-private-key-file): %w", err)
	}
	common.AppID, common.PrivateKey, common.Registerer = f.appID, key, registry
	return github.New(common)
}
