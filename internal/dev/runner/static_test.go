package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/agent"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/runner"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// TestMain doubles as the program that a supervisor runs: registration, listener, and worker.
func TestMain(m *testing.M) {
	root := os.Getenv("DEVRUNNER_TEST_ROOT")
	last := os.Args[len(os.Args)-1]
	if root == "" && last != "worker" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch last {
	case "worker":
		err = runner.RunWorker(ctx, os.Stdin, runner.Options{})
	case "--unattended":
		err = runner.Configure(ctx, runner.ConfigureOptions{Root: root, Environ: os.Environ()})
	default:
		var r *runner.Runner
		if r, err = runner.New(runner.Options{Root: root, WorkDir: root, Worker: []string{"worker"}}); err == nil {
			err = r.Run(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const token = "ghp_of-a-person"

// github starts a stand-in with an organization in an enterprise, and a client with a person's token.
func startGitHub(t *testing.T) (*standin.Local, *github.Client) {
	t.Helper()
	in, err := standin.Start(t.Context(), standin.Options{
		Installations: []standin.Installation{{ID: 11, Account: "acme", Repositories: []string{"app"}, RunnerGroups: []string{"builders"}}},
		Enterprises:   []standin.Enterprise{{Slug: "big", Accounts: []string{"acme"}}},
		Tokens:        []standin.PersonalToken{{Name: "person", Value: token}},
		RunnerKeys:    1,
	})
	require.NoError(t, err)
	t.Cleanup(in.Close)
	client, err := github.NewClient(github.WithHTTPClient(&http.Client{Timeout: await.Limit, Transport: bearer{}}), github.WithEnterpriseURLs(in.URL, in.URL),
		github.WithDisableRateLimitCheck())
	require.NoError(t, err)
	return in, client
}

type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return http.DefaultTransport.RoundTrip(r)
}

func inputs(pairs ...string) []string {
	var env []string
	for i := 0; i < len(pairs); i += 2 {
		env = append(env, "ACTIONS_RUNNER_INPUT_"+pairs[i]+"="+pairs[i+1])
	}
	return env
}

func TestConfigure_WritesWhatGitHubsRunnerWrites(t *testing.T) {
	t.Parallel()
	in, client := startGitHub(t)
	given, _, err := client.Actions.CreateOrganizationRegistrationToken(t.Context(), "acme")
	require.NoError(t, err)
	root := t.TempDir()
	env := inputs("URL", in.URL+"/acme", "TOKEN", given.GetToken(), "NAME", "one", "LABELS", "gpu, big", "RUNNERGROUP", "Builders", "WORK", "_jobs", "DISABLEUPDATE", "true")
	require.NoError(t, runner.Configure(t.Context(), runner.ConfigureOptions{Root: root, Environ: env}))
	for _, name := range []string{".runner", ".credentials", ".credentials_rsaparams"} {
		info, err := os.Stat(filepath.Join(root, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.NotContains(t, string(text), given.GetToken())
	}
	listed, _, err := client.Actions.ListOrganizationRunners(t.Context(), "acme", nil)
	require.NoError(t, err)
	require.Len(t, listed.Runners, 1)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, in.URL+"/orgs/acme/actions/runners", nil)
	require.NoError(t, err)
	answer, err := bearer{}.RoundTrip(request)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, errors.Join(err, answer.Body.Close()))
	require.Contains(t, string(text), `"ephemeral":false`)
	require.Contains(t, string(text), `"runner_group_id":2`)
	var labels []string
	for _, label := range listed.Runners[0].Labels {
		labels = append(labels, label.GetName()+" "+label.GetType())
	}
	require.Contains(t, labels, "self-hosted read-only")
	require.Contains(t, labels, "gpu custom")
	require.ErrorIs(t, runner.Configure(t.Context(), runner.ConfigureOptions{Root: root, Environ: env}), runner.ErrConfigured)

	again := runner.ConfigureOptions{Root: t.TempDir(), Environ: env}
	require.ErrorContains(t, runner.Configure(t.Context(), again), "may not be replaced")
	again.Environ = append(env, inputs("REPLACE", "true")...)
	require.NoError(t, runner.Configure(t.Context(), again), "one token registers any number of runners")
	listed, _, err = client.Actions.ListOrganizationRunners(t.Context(), "acme", nil)
	require.NoError(t, err)
	require.Len(t, listed.Runners, 1)
}

// As GitHub's own: with --no-default-labels a runner has its own labels alone, and has to have one.
func TestConfigure_NoDefaultLabels(t *testing.T) {
	t.Parallel()
	in, client := startGitHub(t)
	given, _, err := client.Actions.CreateOrganizationRegistrationToken(t.Context(), "acme")
	require.NoError(t, err)
	env := inputs("URL", in.URL+"/acme", "TOKEN", given.GetToken(), "NAME", "one")
	bare := runner.ConfigureOptions{Root: t.TempDir(), Environ: env, NoDefaultLabels: true}
	require.ErrorContains(t, runner.Configure(t.Context(), bare), "a runner needs a label")
	bare.Environ = append(env, inputs("LABELS", "gpu")...)
	require.NoError(t, runner.Configure(t.Context(), bare))
	listed, _, err := client.Actions.ListOrganizationRunners(t.Context(), "acme", nil)
	require.NoError(t, err)
	require.Len(t, listed.Runners[0].Labels, 1)
	require.Equal(t, "gpu", listed.Runners[0].Labels[0].GetName())
}

func TestConfigure_BadInputGetsASentenceWithoutTheToken(t *testing.T) {
	t.Parallel()
	in, client := startGitHub(t)
	given, _, err := client.Actions.CreateOrganizationRegistrationToken(t.Context(), "acme")
	require.NoError(t, err)
	for want, env := range map[string][]string{
		"_URL to the address":                 inputs("TOKEN", "secret"),
		"_TOKEN to a registration token":      inputs("URL", in.URL+"/acme"),
		"_NAME to the runner's name":          inputs("URL", in.URL+"/acme", "TOKEN", "secret"),
		"beginning the registration":          inputs("URL", in.URL+"/acme", "TOKEN", "secret", "NAME", "one"),
		"the service answers 404":             inputs("URL", in.URL+"/acme/app", "TOKEN", given.GetToken(), "NAME", "one"),
		`there is no runner group "testers"`:  inputs("URL", in.URL+"/acme", "TOKEN", given.GetToken(), "NAME", "one", "RUNNERGROUP", "testers"),
		"name holds a character that a runne": inputs("URL", in.URL+"/acme", "TOKEN", given.GetToken(), "NAME", "one?"),
	} {
		err := runner.Configure(t.Context(), runner.ConfigureOptions{Root: t.TempDir(), Environ: env})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, err.Error(), given.GetToken())
	}
}

// A supervised static runner does job after job, of the whole enterprise, each in a worker of its own; the job at a stop is its last.
func TestStatic_POOL9_JobAfterJobUnderTheSupervisor(t *testing.T) {
	t.Parallel()
	in, client := startGitHub(t)
	given, _, err := client.Enterprise.CreateRegistrationToken(t.Context(), "big")
	require.NoError(t, err)
	root, secret, status := t.TempDir(), t.TempDir(), t.TempDir()
	for name, value := range map[string]string{"token": given.GetToken(), "url": in.URL + "/enterprises/big", "name": "set-0-abcde", "labels": "gpu"} {
		require.NoError(t, os.WriteFile(filepath.Join(secret, name), []byte(value), 0o600))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	said := make(chan string, 1000)
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Supervise(ctx, agent.SuperviseOptions{
			RegistrationDir: secret, StatusDir: status, Command: []string{os.Args[0], "run"},
			Environ: append(os.Environ(), "DEVRUNNER_TEST_ROOT="+root), Stdout: os.Stderr, Stderr: os.Stderr,
			Log: slog.New(slog.NewTextHandler(logLines(said), nil)),
		})
	}()
	submit := func(script string) int64 {
		runs, err := in.Submit(standin.Submission{Repo: "acme/app", Content: "on: push\njobs:\n  one:\n    runs-on: [self-hosted, gpu]\n    steps:\n    - run: " + script + "\n"})
		require.NoError(t, err)
		return runs[0].ID
	}
	job := func(run int64) standin.JobView {
		jobs, err := in.Admin.Jobs(t.Context(), run, "")
		require.NoError(t, err)
		return jobs[0]
	}
	ready := func() bool { return agent.Ready("", status) == nil }
	for range 3 {
		run := submit("echo done")
		require.Eventually(t, func() bool { return job(run).Conclusion == "success" }, time.Minute, 10*time.Millisecond)
		require.Eventually(t, ready, time.Minute, 10*time.Millisecond)
	}
	runners, err := in.Admin.Runners(t.Context())
	require.NoError(t, err)
	require.Len(t, runners, 1)
	require.Equal(t, "enterprises/big", runners[0].Scope)

	gate := filepath.Join(t.TempDir(), "gate")
	last := submit("until [ -e " + gate + " ]; do sleep 0.05; done")
	require.Eventually(t, func() bool { return job(last).Status == "in_progress" && !ready() }, time.Minute, 10*time.Millisecond)
	next := submit("echo never")
	stop()
	for line := ""; !strings.Contains(line, "is the last"); {
		line = await.Receive(t, said, "the runner says that its job is the last")
	}
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	require.NoError(t, await.Receive(t, ended, "the runner exits after its job"))
	require.Equal(t, "success", job(last).Conclusion, "it was not cancelled")
	require.Equal(t, "queued", job(next).Status)
	require.Zero(t, job(next).Acquisitions)
	require.False(t, ready())
}

type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}
