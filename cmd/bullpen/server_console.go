package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/bullpen-ci/bullpen/internal/server/console"
)

// newConsole makes the pages for people. Their sessions are sealed with a key that is derived from the App's private key: all replicas have
// that, no other process does, and when it is replaced users log in again.
func newConsole(cfg serverConfig, r *replica) (*console.Console, error) {
	secret, err := os.ReadFile(cfg.keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the App's private key (--github-private-key-file): %w", err)
	}
	provider, err := cfg.oidc.options()
	if err != nil {
		return nil, err
	}
	return console.New(console.Options{
		OIDC: provider, API: r.admin.Handler(), Admission: r.admin.Admission(), Secret: secret, Counters: r.registry, Log: r.log, Now: r.clock.Now,
		Version: version,
	})
}

// adminHandler serves people: the console under /ui/, the API beside it.
func (r *replica) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/ui/", r.console.Handler())
	mux.Handle("/ui", r.console.Handler())
	mux.Handle("/", r.admin.Handler())
	mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusSeeOther))
	return mux
}
