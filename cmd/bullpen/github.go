package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/lib/credential"
)

// githubFlags say where GitHub is, and how its certificate is checked, for every command that connects to it.
type githubFlags struct {
	url    string
	caFile string
}

func (f *githubFlags) register(set *pflag.FlagSet) {
	set.StringVar(&f.url, "github-url", github.DefaultBaseURL,
		"URL of GitHub or of its API: https://github.com, https://NAME.ghe.com or, for an Enterprise Server, https://HOST")
	set.StringVar(&f.caFile, "github-ca-file", "",
		"CA certificates (PEM) for GitHub, in addition to the system's: for an Enterprise Server or a proxy with a private CA; reloaded when the file changes")
}

// api is the URL of GitHub's API.
func (f *githubFlags) api() (string, error) { return githubAPI(f.url) }

func githubAPI(address string) (string, error) {
	api, err := github.APIAddress(address)
	if err != nil {
		return "", fmt.Errorf("--github-url: %w", err)
	}
	return api, nil
}

// trust returns the way to GitHub, and what keeps its CA as the file is. Without a file both are nil: clients then trust the system's.
func (f *githubFlags) trust(ctx context.Context) (http.RoundTripper, []credential.Source, error) {
	if f.caFile == "" {
		return nil, nil, nil
	}
	certificates, err := os.ReadFile(f.caFile)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the CA of GitHub (--github-ca-file): %w", err)
	}
	transport := github.NewTransport()
	if err := transport.UseCA(ctx, certificates); err != nil {
		return nil, nil, fmt.Errorf("reading the CA of GitHub (--github-ca-file %s): %w", f.caFile, err)
	}
	return transport, []credential.Source{{
		Name: "github_ca", Files: []credential.File{{Path: f.caFile}},
		Use: func(ctx context.Context, contents [][]byte) error { return transport.UseCA(ctx, contents[0]) },
	}}, nil
}
