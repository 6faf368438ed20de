//go:build !production

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/load"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// loadedFleet is a real stand-in, and an admin API in which its jobs have ended, except those that ask for "never".
func loadedFleet(t *testing.T) (github *standin.AdminClient, server string) {
	t.Helper()
	key, _, err := standin.GenerateAppKey()
	require.NoError(t, err)
	fake, err := standin.New(standin.Options{
		URL: "http://127.0.0.1", AppID: 1, AppKey: key, AdminToken: "s3cret",
		Installations: []standin.Installation{{Account: "acme", Repositories: []string{"app"}}},
	})
	require.NoError(t, err)
	forge := httptest.NewServer(fake)
	t.Cleanup(forge.Close)
	github = &standin.AdminClient{URL: forge.URL, Token: "s3cret"}
	jobOf := func(view standin.JobView) adminapi.Job {
		at := time.Unix(1_700_000_000, 0).UTC()
		job := adminapi.Job{ID: view.ID, Repository: view.Repo, Name: view.Name, Labels: view.Labels, State: "queued", QueuedAt: at}
		if view.Labels[0] == "never" {
			return job
		}
		job.State, job.Conclusion, job.StartedAt, job.CompletedAt = "completed", "success", &at, &at
		job.Timeline = &adminapi.Timeline{Split: []adminapi.TimelinePhase{{Name: "dispatch", Seconds: 0.5}, {Name: "run", Seconds: 9}}}
		return job
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+adminapi.PathJobs, func(w http.ResponseWriter, _ *http.Request) {
		list := adminapi.JobList{Jobs: []adminapi.Job{}}
		for _, view := range fake.Jobs() {
			if job := jobOf(view); job.CompletedAt == nil {
				list.Jobs = append(list.Jobs, job)
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	one := func(w http.ResponseWriter, r *http.Request, answer func(adminapi.Job) any) {
		id, _ := strconv.ParseInt(r.PathValue("job"), 10, 64)
		for _, view := range fake.Jobs() {
			if view.ID == id {
				_ = json.NewEncoder(w).Encode(answer(jobOf(view)))
				return
			}
		}
		http.NotFound(w, r)
	}
	mux.HandleFunc("GET "+adminapi.PathJobs+"/{job}", func(w http.ResponseWriter, r *http.Request) {
		one(w, r, func(job adminapi.Job) any { return job })
	})
	mux.HandleFunc("GET "+adminapi.PathJobs+"/{job}/why", func(w http.ResponseWriter, r *http.Request) {
		one(w, r, func(job adminapi.Job) any {
			return adminapi.Why{JobID: job.ID, Job: &job, Reasons: []adminapi.Reason{{Code: "no-pool", Sentence: "Nobody serves never."}}}
		})
	})
	api := httptest.NewServer(mux)
	t.Cleanup(api.Close)
	return github, api.URL
}

func TestDevLoad_SubmitsAndSaysWhatBecameOfIt(t *testing.T) {
	github, server := loadedFleet(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	token, kubeconfig := file("token", "s3cret\n"), kubeconfigFor(t)
	run := func(ctx context.Context, args ...string) (stdout, stderr string, err error) {
		cmd, out, progress := newDevLoadCommand(), bytes.Buffer{}, bytes.Buffer{}
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetOut(&out)
		cmd.SetErr(&progress)
		cmd.SetArgs(append([]string{"--github", github.URL, "--github-admin-token-file", token, "--server", server, "--kubeconfig", kubeconfig}, args...))
		err = cmd.ExecuteContext(ctx)
		return out.String(), progress.String(), err
	}
	plot := filepath.Join(dir, "latency.svg")
	mix := file("mix.yaml", "runs:\n- {repository: acme/app, labels: [linux, '12'], jobs: 3}\n- {repository: acme/lib, labels: [linux]}\n- {repository: zoo/app, labels: [linux], jobs: 2}\n")

	out, progress, err := run(t.Context(), "--burst", "12", "--within", "50ms", "--mix", mix, "--plot", plot, "-o", "json")
	require.NoError(t, err, "%s", progress)
	var result load.Result
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	require.Equal(t, 12, result.SubmittedRuns)
	require.Equal(t, result.PlannedJobs, result.Conclusions["success"])
	require.Equal(t, []string{"claim", "wait"}, []string{result.Stages[0].Name, result.Stages[1].Name})
	require.Contains(t, progress, "jobs submitted")
	jobs, err := github.Jobs(t.Context(), 0, "")
	require.NoError(t, err)
	require.Len(t, jobs, result.PlannedJobs)
	require.Contains(t, jobs[0].Labels, "linux")
	drawn, err := os.ReadFile(plot)
	require.NoError(t, err)
	require.NoError(t, xml.Unmarshal(drawn, new(struct{})))

	out, _, err = run(t.Context(), "--rate", "1000", "--jobs", "2", "--label", "never", "--patience", "10ms")
	var coded exitCoder
	require.ErrorAs(t, err, &coded)
	require.Equal(t, exitLoadUnended, coded.ExitCode())
	require.Contains(t, out, "Nobody serves never. (no-pool)")
	require.Contains(t, out, "acme/app, is queued")

	interrupted, cancel := context.WithCancel(t.Context())
	cancelled := make(chan struct{})
	go func() { // as soon as something waits
		defer close(cancelled)
		for interrupted.Err() == nil {
			if jobs, err := github.Jobs(t.Context(), 0, "queued"); err != nil || len(jobs) > result.PlannedJobs+2 {
				cancel()
			}
		}
	}()
	out, _, err = run(interrupted, "--rate", "1000", "--jobs", "1", "--label", "never")
	cancel()
	await.Receive(t, cancelled, "the goroutine that cancels the run ends")
	require.ErrorAs(t, err, &coded)
	require.Equal(t, exitLoadInterrupted, coded.ExitCode())
	require.Contains(t, out, "interrupted")

	for want, args := range map[string][]string{
		`unknown field "label"`: {"--rate", "1", "--mix", file("bad.yaml", "runs: [{repository: a/b, label: x}]")},
		"owner/name":            {"--rate", "1", "--repository", "app"},
		"none of the others":    {"--rate", "1", "--mix", mix, "--matrix", "2"},
		"at least one of":       {"--jobs", "1"},
		"making the plot":       {"--rate", "1", "--plot", filepath.Join(dir, "none", "x.svg")},
		"unencrypted":           {"--rate", "1", "--github", "http://github.example.com"},
		"is not usable as":      {"--rate", "1", "--github-admin-token-file", file("wrong", "wrong")},
	} {
		_, _, err := run(t.Context(), args...)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "s3cret")
		require.False(t, errors.Is(err, io.EOF) || strings.Contains(err.Error(), "panic"))
	}

	unmade := filepath.Join(dir, "unmade.svg")
	for _, name := range []string{plot, unmade} { // refused before a single job
		_, _, err = run(t.Context(), "--rate", "1", "--plot", name, "--github-admin-token-file", filepath.Join(dir, "wrong"))
		require.ErrorContains(t, err, "is not usable as")
	}
	kept, err := os.ReadFile(plot)
	require.NoError(t, err)
	require.Equal(t, drawn, kept)
	require.NoFileExists(t, unmade)
	_, _, err = run(t.Context(), "--rate", "1", "--github", "")
	require.ErrorContains(t, err, "--github")
}
