package jobcontainers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// recordings are what GitHub's worker (actions/runner 2.336.0) has written to a hook.
const recordings = "../../internal/jobcontainer/hook/testdata/"

// recorded reads the calls of a recording.
func recorded(t *testing.T, name string) []json.RawMessage {
	t.Helper()
	file, err := os.Open(recordings + name)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	var calls []json.RawMessage
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		calls = append(calls, bytes.Clone(lines.Bytes()))
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, calls)
	return calls
}

// The calls of a job with a job container, a service, scripts, a JavaScript action and a container action, as they were recorded.
func TestRecorded_JobWithEverything(t *testing.T) {
	postgres := server("postgres:17", "5432")
	alpine := Image{Name: "alpine:3.20", OSRelease: "ID=alpine\n"}
	j := startJob(t, debian(), postgres, alpine)
	j.pod.WriteExternals(t, "node20/bin/node", "#!/bin/sh\necho \"node runs $1\"\n")
	var logs []string
	for _, call := range recorded(t, "all.jsonl") {
		j.placeScript(call)
		answer := j.run(Call{Stdin: call})
		code := 0
		if bytes.Contains(call, []byte(`"run_container_step"`)) {
			code = 2 // /bin/sh has no script that is called echo
			require.Contains(t, answer.Log, "echo")
		}
		require.Equal(t, code, answer.Code, "%s\n%s", call, answer.Log)
		logs = append(logs, answer.Log)
		if len(logs) == 1 {
			require.JSONEq(t, `{"isAlpine": false,
				"context": {"container": {"id": "job-1-0", "network": "runner-7"}, "services": [{"id": "service-1-0", "network": "runner-7", "ports": {"5432": "5432"}}]},
				"state": {"pod": "runner-7", "request": "7ac61e13-d81c-4458-951b-8077046d6eb7", "containers": ["job-1-0", "service-1-0"]}}`, answer.Response)
			output, code := j.pod.Runner(t, Program, "dial", "localhost:5432")
			require.Zero(t, code, output)
			require.Contains(t, output, "serve 5432")
		}
	}
	all := strings.Join(logs, "\n")
	require.Contains(t, all, "script 7e82b7e0-9ae1-4b95-aa5b-77985d2a9dba.sh in /tmp as uid 0, A=8ebc5e29ed30c30864091ec9661caf58ff5aa20a")
	require.Contains(t, all, "script 93bd9f35-8432-417f-8402-057d1e206862.sh in /__w/app/app as uid 0, A=")
	require.Equal(t, 2, strings.Count(all, "node runs /__w/app/app/./mine/i.js"))
	require.Contains(t, all, "Print service container logs: postgres")
	require.Contains(t, all, "ready on 5432")
	for _, name := range j.pod.Containers() {
		j.ended(name)
	}
	requests := j.pod.Requests()
	require.Len(t, requests, 2)
	require.Equal(t, []jobcontainer.Wanted{{Role: jobcontainer.RoleJob, Image: "debian:12"}, {Role: jobcontainer.RoleService, Image: "postgres:17"}}, requests[0].Containers)
	require.Equal(t, []jobcontainer.Wanted{{Role: jobcontainer.RoleStep, Image: "alpine:3.20"}}, requests[1].Containers)
}

// placeScript writes the script that the worker has written before a call. In a container action of the recordings the shell has no script.
func (j *job) placeScript(call json.RawMessage) {
	j.Helper()
	var input struct {
		Command string
		Args    struct{ EntryPointArgs []string }
	}
	require.NoError(j, json.Unmarshal(call, &input))
	if args := input.Args.EntryPointArgs; input.Command == "run_script_step" && len(args) == 2 {
		script := "echo script " + path.Base(args[1]) + " in $PWD as uid $(id -u), A=$A\ntest -w $GITHUB_ENV\ntest -r /github/workflow\n"
		j.pod.WriteWork(j.T, strings.TrimPrefix(args[1], "/__w/"), script, 0o644)
		var env struct {
			Args struct{ EnvironmentVariables map[string]string }
		}
		require.NoError(j, json.Unmarshal(call, &env))
		j.pod.WriteWork(j.T, strings.TrimPrefix(env.Args.EnvironmentVariables["GITHUB_ENV"], "/__w/"), "", 0o644)
	}
}

// A job with services and no container: its steps stay on the runner.
func TestRecorded_ServicesOnly(t *testing.T) {
	j := startJob(t, server("postgres:17", "5432"))
	calls := recorded(t, "services-only.jsonl")
	answer := j.run(Call{Stdin: calls[0]})
	require.Zero(t, answer.Code, answer.Log)
	require.JSONEq(t, `{"context": {"services": [{"id": "service-1-0", "network": "runner-7", "ports": {"5432": "5432"}}]},
		"state": {"pod": "runner-7", "request": "4df77909-c5ef-4cee-90d9-7489f08c99fd", "containers": ["service-1-0"]}}`, answer.Response)
	for _, address := range []string{"localhost:5432", "postgres:5432"} {
		output, code := j.pod.Runner(t, Program, "dial", address)
		require.Zero(t, code, output)
		require.Contains(t, output, "serve 5432")
	}
	answer = j.run(Call{Stdin: calls[1]})
	require.Zero(t, answer.Code, answer.Log)
	require.Contains(t, answer.Log, "Print service container logs: postgres")
	j.ended("service-1-0")
}
