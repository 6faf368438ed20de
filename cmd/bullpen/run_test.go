//go:build !production

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// withoutServer has commands find no server.
func withoutServer(t *testing.T) {
	t.Helper()
	t.Setenv("BULLPEN_SERVER", "")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
}

func writeWorkflow(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ci.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// execute runs a command line of the whole program.
func execute(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := newRootCommand()
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// The file's mistakes come first, whether or not there is a stand-in.
func TestRun_ChecksTheFileBeforeItLooksForAServer(t *testing.T) {
	withoutServer(t)
	bad := writeWorkflow(t, "on: push\njobs:\n  a:\n    runs-on: x\n    steps:\n      - uses: actions/checkout@v4\n")
	_, _, err := execute(t, "run", bad)
	require.ErrorContains(t, err, "cannot run the workflow: "+bad+":6:")
	require.ErrorContains(t, err, "uses is not supported here")
	_, _, err = execute(t, "run", filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorContains(t, err, "reading the workflow file: ")
	good := writeWorkflow(t, "on: push\njobs: {a: {runs-on: bullpen, steps: [{run: make}]}}")
	_, _, err = execute(t, "run", good, "--input", "version")
	require.EqualError(t, err, `--input must be NAME=VALUE, got "version"`)
	_, _, err = execute(t, "run", good)
	require.EqualError(t, err, "`bullpen up` is not running here. Start it, or name its directory with --state-dir, and repeat the command. In a cluster GitHub starts workflows: push to GitHub")
	_, _, err = execute(t, "run", good, "--state-dir", "/no/such")
	require.ErrorContains(t, err, "`bullpen up` is not running in /no/such.")
	t.Setenv("BULLPEN_SERVER", "https://bullpen.example.com")
	_, _, err = execute(t, "run", good)
	require.EqualError(t, err, "https://bullpen.example.com is not the server of a `bullpen up` of this machine. In a cluster GitHub starts workflows: "+
		"push to GitHub, or use `gh workflow run`. For a `bullpen up` of this machine, use --state-dir DIR")
}

func TestRefuseRun_OfAnUpWithAGitHubApp(t *testing.T) {
	require.EqualError(t, refuseRun(&cli.NotLocalError{Server: "s", Up: true}, ""),
		"this `bullpen up` has no stand-in for GitHub: it uses a real GitHub App, and GitHub starts workflows. Push to a repository that has the App installed")
	require.ErrorContains(t, refuseRun(&cli.NotLocalError{}, ""), "`bullpen up` is not running here. Start it, or name its directory with --state-dir, and repeat the command.")
	killed := &cli.KilledError{Dir: "/d", PID: 7}
	require.Equal(t, killed, refuseRun(killed, "/d"))
}

func TestParseInputs(t *testing.T) {
	inputs, err := parseInputs([]string{"a=b", "c=d=e,f", "g="})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b", "c": "d=e,f", "g": ""}, inputs)
	_, err = parseInputs([]string{"=b"})
	require.ErrorContains(t, err, "--input must be NAME=VALUE")
}

// fakeLocal is a stand-in that notes what it is asked.
type fakeLocal struct{ asked []string }

func (f *fakeLocal) say(text string) (string, error) {
	f.asked = append(f.asked, text)
	return text, nil
}

func (f *fakeLocal) CancelJob(_ context.Context, id int64) (string, error) {
	if id == 404 {
		return "", errors.New("job 404 not found")
	}
	return f.say("cancelled the job")
}
func (f *fakeLocal) CancelRun(context.Context, int64) (string, error) {
	return f.say("cancelled the run")
}
func (f *fakeLocal) JobLog(_ context.Context, _ int64, follow bool, out, _ io.Writer) error {
	if follow {
		_, err := io.WriteString(out, "followed\n")
		return err
	}
	_, err := io.WriteString(out, "read\n")
	return err
}

// upOf is the state directory of a `bullpen up` whose server is there.
func upOf(t *testing.T, server string) string {
	t.Helper()
	dir := t.TempDir()
	status, err := json.Marshal(map[string]any{"admin": server, "kubeconfig": kubeconfigFor(t), "github": "http://127.0.0.1:9", "standIn": true})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status.json"), status, 0o600))
	return dir
}

// In the one-machine mode cancel and job --log act on the stand-in, and nothing else is asked.
func TestCancelAndLog_OfTheOneMachineMode(t *testing.T) {
	withoutServer(t)
	fake := &fakeLocal{}
	before := localGitHubOf
	t.Cleanup(func() { localGitHubOf = before })
	localGitHubOf = func(site cli.Site) (localGitHub, error) { return fake, nil }
	dir := upOf(t, "http://127.0.0.1:1")
	for want, args := range map[string][]string{
		"cancelled the job\n": {"cancel", "5"}, "cancelled the run\n": {"cancel", "--run", "8"}, "read\n": {"job", "5", "--log"}, "followed\n": {"job", "5", "--log", "-f"},
	} {
		stdout, _, err := execute(t, append(args, "--state-dir", dir)...)
		require.NoError(t, err, args)
		require.Equal(t, want, stdout, args)
	}
	_, _, err := execute(t, "cancel", "404", "--state-dir", dir)
	require.ErrorContains(t, err, "job 404 not found")
	require.ElementsMatch(t, []string{"cancelled the job", "cancelled the run"}, fake.asked)
}

// In a cluster they say where GitHub has the job, and fail: nothing was cancelled, and no log was printed.
func TestCancelAndLog_OfACluster(t *testing.T) {
	withoutServer(t)
	t.Setenv("KUBECONFIG", kubeconfigFor(t))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != adminapi.PathJobs+"/31" {
			http.Error(w, `{"error": "unknown job"}`, http.StatusNotFound)
			return
		}
		run := "https://github.com/acme/app/actions/runs/27"
		_ = json.NewEncoder(w).Encode(adminapi.Job{ID: 31, RunID: 27, Repository: "acme/app", URL: run + "/job/31", RunURL: run})
	}))
	t.Cleanup(server.Close)
	t.Setenv("BULLPEN_SERVER", server.URL)
	for want, args := range map[string][]string{
		"Cancel run 27 at https://github.com/acme/app/actions/runs/27 or with `gh run cancel 27 --repo acme/app`":    {"cancel", "31"},
		"Cancel it at https://github.com/acme/app/actions/runs/27 or with `gh run cancel 27 --repo acme/app`":        {"cancel", "--run", "https://github.com/acme/app/actions/runs/27"},
		"Cancel it with `gh run cancel 27 --repo OWNER/NAME`":                                                        {"cancel", "--run", "27"},
		"at https://github.com/acme/app/actions/runs/27/job/31 or with `gh run view --job 31 --log --repo acme/app`": {"job", "31", "--log"},
		"unknown job": {"job", "32", "--log"},
	} {
		stdout, _, err := execute(t, args...)
		require.ErrorContains(t, err, want, args)
		require.Empty(t, stdout, args)
	}
}

func TestCancelAndLog_Mistakes(t *testing.T) {
	withoutServer(t)
	for want, args := range map[string][]string{
		"missing argument JOB: write `bullpen cancel JOB`, or `bullpen cancel --run RUN`": {"cancel"},
		"JOB and --run exclude each other: give one of them":                              {"cancel", "5", "--run", "8"},
		"invalid job \"x\"":                               {"cancel", "x"},
		"invalid run \"x\"":                               {"cancel", "--run", "x"},
		"too many arguments":                              {"cancel", "5", "6"},
		"--follow needs --log":                            {"job", "5", "--follow"},
		"--log and --output exclude each other":           {"job", "5", "--log", "-o", "json"},
		"no server found":                                 {"job", "5", "--log"},
		"missing argument FILE: write `bullpen run FILE`": {"run"},
	} {
		_, _, err := execute(t, args...)
		require.ErrorContains(t, err, want, args)
	}
}
