package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/health"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// run runs the hook with a command, and returns its exit code.
func (s *standIn) run(c *call, command, args string) int {
	s.t.Helper()
	return s.runWithin(s.t.Context(), c, command, args)
}

func (s *standIn) runWithin(ctx context.Context, c *call, command, args string) int {
	s.t.Helper()
	dir := s.t.TempDir()
	c.Input = strings.NewReader(fmt.Sprintf(`{"command": %q, "responseFile": %q, "args": %s, "state": null}`, command, filepath.Join(dir, "9c0b.json"), args))
	err := Run(ctx, c.Options)
	var exit *ExitError
	if err == nil {
		return 0
	}
	require.ErrorAs(s.t, err, &exit)
	require.Empty(s.t, err.Error(), "the reason is in the log")
	return exit.Code
}

// The entries of containers stay in the pod's spec.
func TestContainerStep_HasALimit(t *testing.T) {
	pod := newStandIn(t)
	c := pod.call()
	require.NoError(t, c.save(&session{Steps: MaxSteps}))
	require.Equal(t, 1, pod.run(c, "run_container_step", `{"image": "alpine:3"}`))
	require.Equal(t, "::error::This job has started 32 containers, the most this pool allows.\n", pod.text())
	require.NoError(t, c.save(&session{Steps: MaxSteps - 1}))
	require.Equal(t, 1, pod.run(c, "run_container_step", `{"image": "alpine:3"}`))
	require.Contains(t, pod.text(), "not expected", "it is asked for")
}

func TestRun_NeedsLinux(t *testing.T) {
	pod := newStandIn(t)
	c := pod.call()
	c.Platform = "darwin/arm64"
	require.Equal(t, 1, pod.run(c, "prepare_job", `{}`))
	require.Equal(t, "::error::Job containers need a Linux pool.\n", pod.text())
}

// A line break in an error ends no workflow command.
func TestRun_ErrorsAreOneCommand(t *testing.T) {
	pod := newStandIn(t)
	require.Equal(t, 1, pod.run(pod.call(), "a\n::set-env name=A::b", `{}`))
	require.Equal(t, 1, strings.Count(pod.text(), "\n"))
}

// What is kept between two commands has secrets, so nobody else may read it, and a link in its place is not followed.
func TestSession_IsTheRunnersAlone(t *testing.T) {
	c := newStandIn(t).call()
	c.PrivateDir = filepath.Join(c.PrivateDir, "hook")
	empty, err := c.load()
	require.NoError(t, err)
	require.Equal(t, &session{}, empty)
	s := &session{Request: "r", Containers: []member{{Role: jobcontainer.RoleJob, Name: "job", Container: "job-1-0", Env: []string{"PASSWORD=secret"}}}}
	require.NoError(t, c.save(s))
	info, err := os.Stat(c.sessionFile())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	info, err = os.Stat(c.PrivateDir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	loaded, err := c.load()
	require.NoError(t, err)
	require.Equal(t, s, loaded)
	require.NotContains(t, string(s.state("runner-7")), "secret")

	require.NoError(t, os.WriteFile(c.sessionFile(), []byte(`{"request": "secret`), 0o600))
	_, err = c.load()
	require.ErrorContains(t, err, "is damaged")
	require.NotContains(t, err.Error(), "secret")
	require.NoError(t, os.Remove(c.sessionFile()))
	require.NoError(t, os.Symlink("/etc/passwd", c.sessionFile()))
	_, err = c.load()
	require.ErrorIs(t, err, syscall.ELOOP)
}

// A file of the workspace may be a link to one of the runner's.
func TestReadBelow_LeavesNotTheDirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "outside"), []byte("A=secret"), 0o600))
	work := filepath.Join(dir, "work")
	require.NoError(t, os.Mkdir(work, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(work, "some.env"), []byte("A=1"), 0o600))
	require.NoError(t, os.Symlink("../outside", filepath.Join(work, "link.env")))
	content, err := readBelow(work, filepath.Join(work, "some.env"))
	require.NoError(t, err)
	require.Equal(t, "A=1", string(content))
	for _, name := range []string{"link.env", "../outside", "absent", "."} {
		_, err = readBelow(work, filepath.Join(work, name))
		require.Error(t, err, name)
	}
	require.NoError(t, os.Truncate(filepath.Join(work, "some.env"), maxFile+1))
	_, err = readBelow(work, filepath.Join(work, "some.env"))
	require.ErrorContains(t, err, "larger than")
}

func TestHealth_TimeoutsAreThoseOfGuards(t *testing.T) {
	require.LessOrEqual(t, health.MostTimeout, wire.MaxHealthTimeout)
}

func TestMakeLink_ReplacesLinksAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "workspace")
	for _, target := range []string{"/__w/app/app", "/__w/app/app", "/__w/other/other"} {
		require.NoError(t, makeLink(path, target))
		have, err := os.Readlink(path)
		require.NoError(t, err)
		require.Equal(t, target, have)
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "home"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "home", "file"), nil, 0o600))
	require.Error(t, makeLink(filepath.Join(dir, "home"), "/__w/_temp/_github_home"))
}

// A process that was killed for memory leaves its container alive, so nothing but its exit tells.
func TestExits_ForMemoryAreExplained(t *testing.T) {
	pod := newStandIn(t)
	c := pod.call()
	c.Resources, c.input.Command = "8 CPU, 16Gi", hook.RunScriptStep
	killed := client.Exit{Code: 137, OutOfMemory: true}
	var exit *ExitError
	require.ErrorAs(t, c.finish(killed, "job", "bash", "debian:12", nil), &exit)
	require.Equal(t, 137, exit.Code)
	pod.guard("service-1-0").status = func() (client.Status, error) { return client.Status{State: "exited", Exit: &killed}, nil }
	require.True(t, c.ended(t.Context(), &member{Name: "db", Container: "service-1-0"}))
	require.Equal(t, "::error::A process of container 'job' was killed for lack of memory. The pool allows 16Gi.\n"+
		"::warning::Service 'db' exited with code 137. It is not started again.\n"+
		"::warning::A process of container 'db' was killed for lack of memory. The pool allows 16Gi.\n", pod.text())
}

// As with Docker, a port is taken before any process of the containers starts: which of two has it must not depend on time.
func TestStartAll_OpensPortsBeforeServicesStart(t *testing.T) {
	pod := newStandIn(t)
	p := plan.Plan{Containers: []plan.Container{{Role: jobcontainer.RoleService, Name: "a", Argv: []string{"serve"}}}, Forwards: []plan.Forward{{Protocol: "tcp", HostPort: 8080, Port: 80}}}
	err := pod.call().startAll(t.Context(), p, &session{Containers: []member{{Role: jobcontainer.RoleService, Name: "a", Container: "service-1-0"}}})
	require.EqualError(t, err, "service-1-0: Relay was not expected")
}

// One request for one command: sent again, it has the same id, which the courier accepts as a file's name.
func TestRequestID_IsTheRunnersOwn(t *testing.T) {
	for file, id := range map[string]string{
		"/r/_work/_temp/_runner_hook_responses/4DF77909-c5ef-4cee-90d9-7489f08c99fd.json": "4df77909-c5ef-4cee-90d9-7489f08c99fd",
		"/r/--../a b_C.json": "abc",
	} {
		c := &call{}
		c.input.ResponseFile = file
		require.Equal(t, id, c.requestID())
	}
}

// A root container that has ended does not keep others from writing the names.
func TestNameHosts_TriesAllThatAreRoot(t *testing.T) {
	pod := newStandIn(t)
	c := pod.call()
	s := &session{Hosts: []plan.HostName{{IP: "127.0.0.1", Name: "db"}}, Containers: []member{
		{Role: jobcontainer.RoleJob, Container: "job-1-0"}, {Role: jobcontainer.RoleService, Container: "service-1-0", Root: true}, {Role: jobcontainer.RoleService, Container: "service-1-1", Root: true},
	}}
	pod.guard("service-1-0").hosts = client.ErrAbsent
	require.NoError(t, c.nameHosts(t.Context(), s))
	require.Equal(t, []client.HostEntry{{Address: "127.0.0.1", Name: "db"}}, pod.guard("service-1-1").named)
	require.Empty(t, pod.guard("job-1-0").named)
}

// cleanup_job ends what a prepare_job has wanted that failed, or was killed before it could say so.
func TestCleanup_EndsWhatIsWanted(t *testing.T) {
	pod := newStandIn(t)
	c := pod.call()
	require.NoError(t, c.want([]plan.Container{{Container: "job-1-0"}, {Container: "service-1-0"}}))
	require.NoError(t, c.save(&session{Containers: []member{{Role: jobcontainer.RoleService, Name: "db", Container: "service-1-0", Started: true}}}))
	pod.guard("service-1-0").output = "ready\n"
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the runner may be cancelling the job
	c.Input = strings.NewReader(fmt.Sprintf(`{"command": "cleanup_job", "responseFile": %q, "args": {}}`, filepath.Join(t.TempDir(), "1.json")))
	require.NoError(t, Run(ctx, c.Options))
	require.Equal(t, "##[group]Print service container logs: db\nready\n##[endgroup]\n", pod.text())
	require.Len(t, pod.guard("job-1-0").ends, 1)
	require.Equal(t, c.Bounds.StopGrace, pod.guard("service-1-0").ends[0])
	for _, name := range []string{"job-1-0", "service-1-0"} {
		_, err := os.Stat(filepath.Join(c.JobDir, name, "wanted"))
		require.True(t, errors.Is(err, os.ErrNotExist), "%s starts no more: %v", name, err)
	}
	_, err := os.Stat(c.sessionFile())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The runner may leave standard input open.
func TestRun_WaitsForNoEndOfItsInput(t *testing.T) {
	pod := newStandIn(t)
	c := pod.call()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(reader.Close(), writer.Close())) }()
	_, err = fmt.Fprintf(writer, `{"command": "cleanup_job", "responseFile": %q, "args": {}}`+"\n", filepath.Join(t.TempDir(), "1.json"))
	require.NoError(t, err)
	c.Input = reader
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), c.Options) }()
	require.NoError(t, await.Result(done, "the command is read"))
}

func TestRun_QuotesNothingOfInputThatIsNoJSON(t *testing.T) {
	for input, says := range map[string]string{`{"password": secret}`: "invalid JSON", `{"password": "secret`: "ends too early", "": "ends too early"} {
		pod := newStandIn(t)
		c := pod.call()
		c.Input = strings.NewReader(input)
		require.Error(t, Run(t.Context(), c.Options))
		require.Contains(t, pod.text(), says)
		require.NotContains(t, pod.text(), "secret")
	}
}
