package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/dockerfile/builder"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
)

// builds is what a test says that the pod's builder does.
type builds func(ctx context.Context, request builder.Request, log io.Writer) (builder.Built, error)

func (b builds) Make(ctx context.Context, request builder.Request, log io.Writer) (builder.Built, error) {
	return b(ctx, request, log)
}

// anAction is a step's arguments. The runner's work directory is known by one of its volumes.
const anAction = `{"image": null, "dockerfile": "/home/runner/_work/_actions/acme/greet/v1/sub/Dockerfile", "entryPointArgs": ["a"], "environmentVariables": {"B": "2"},
  "systemMountVolumes": [{"sourceVolumePath": "/home/runner/_work/_temp", "targetVolumePath": "/github/runner_temp", "readOnly": false}]}`

func (s *standIn) callWith(b Builder) *call {
	c := s.call()
	c.Builder, c.Environ = b, []string{"RUNNER_TEMP=/home/runner/_work/_temp"}
	return c
}

func wishes(t *testing.T, c *call) []string {
	found, err := filepath.Glob(filepath.Join(c.JobDir, "*", filepath.Base(jobcontainer.Wish("x"))))
	require.NoError(t, err)
	return found
}

func TestDockerfileStep_RunsWhatWasBuilt(t *testing.T) {
	pod := newStandIn(t)
	var c *call
	c = pod.callWith(builds(func(_ context.Context, request builder.Request, log io.Writer) (builder.Built, error) {
		require.Equal(t, builder.Request{Container: "action-9c0b", Directory: "/__w/_actions/acme/greet/v1/sub", File: "Dockerfile"}, request)
		require.Len(t, wishes(t, c), 1, "a guard stays only where it is wanted")
		for _, piece := range []string{"#1 FROM ", "scratch\n::error::of a build\n#2 ", "DONE"} {
			_, _ = io.WriteString(log, piece)
		}
		return builder.Built{Image: "sha256:1", Config: jobcontainer.ImageConfig{Entrypoint: []string{"/e"}, Cmd: []string{"dropped"}, Env: []string{"A=1", "B=1"}, User: "7", WorkingDir: "/w"}}, nil
	}))
	guard := pod.guard("action-9c0b")
	var ran client.Process
	guard.process = &ran
	guard.run = func(context.Context, <-chan syscall.Signal) (client.Exit, error) { return client.Exit{Code: 3}, nil }
	guard.linked = true
	require.Equal(t, 3, pod.run(c, "run_container_step", anAction))
	require.Equal(t, []string{"/e", "a"}, ran.Argv)
	require.Equal(t, []string{"A=1", "B=2", "GITHUB_ACTIONS=true", "CI=true", "PWD=/w", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}, ran.Env)
	require.Equal(t, "7", ran.User)
	require.Equal(t, "/w", ran.Dir)
	require.Equal(t, "##[group]Build the image of action 'acme/greet/sub' from its Dockerfile\n#1 FROM scratch\n| ::error::of a build\n#2 DONE\n##[endgroup]\n", pod.text())
	require.Len(t, guard.ends, 1, "the container ends with its step")
	require.Empty(t, wishes(t, c))
}

// The profile is that of ephemeral containers. An action is root of the pod's user namespace, and any user of its image in it.
func TestDockerfileStep_HasAnyUserInARestrictedPool(t *testing.T) {
	for _, user := range []string{"", "7"} {
		pod := newStandIn(t)
		c := pod.callWith(builds(func(context.Context, builder.Request, io.Writer) (builder.Built, error) {
			return builder.Built{Image: "sha256:1", Config: jobcontainer.ImageConfig{Entrypoint: []string{"/e"}, User: user}}, nil
		}))
		c.Restricted = true
		guard := pod.guard("action-9c0b")
		var ran client.Process
		guard.process, guard.linked = &ran, true
		guard.run = func(context.Context, <-chan syscall.Signal) (client.Exit, error) { return client.Exit{Code: 3}, nil }
		require.Equal(t, 3, pod.run(c, "run_container_step", anAction), pod.text())
		require.Equal(t, user, ran.User)
	}
}

func TestDockerfileStep_SaysThatItLacksTheRunnersTools(t *testing.T) {
	pod := newStandIn(t)
	c := pod.callWith(builds(func(context.Context, builder.Request, io.Writer) (builder.Built, error) {
		return builder.Built{Image: "sha256:1", Config: jobcontainer.ImageConfig{Entrypoint: []string{"/e"}}}, nil
	}))
	guard := pod.guard("action-9c0b")
	guard.linked = true
	guard.run = func(context.Context, <-chan syscall.Signal) (client.Exit, error) { return client.Exit{Code: 3}, nil }
	tools := `{"sourceVolumePath": "/opt/hostedtoolcache", "targetVolumePath": "/__t", "readOnly": false}, {"sourceVolumePath": "/home/runner/_work/_temp"`
	require.Equal(t, 3, pod.run(c, "run_container_step", strings.Replace(anAction, `{"sourceVolumePath": "/home/runner/_work/_temp"`, tools, 1)), pod.text())
	require.Contains(t, pod.text(), "The runner's tools in '/opt/hostedtoolcache' are not available in container 'step'.\n")
}

func TestDockerfileStep_SaysWhatIsWrong(t *testing.T) {
	fails := func(err error) builds {
		return func(context.Context, builder.Request, io.Writer) (builder.Built, error) {
			return builder.Built{}, err
		}
	}
	group := "##[group]Build the image of action 'acme/greet/sub' from its Dockerfile\n##[endgroup]\n"
	for name, c := range map[string]struct {
		builder    Builder
		args, want string
	}{
		"no BuildKit":   {args: anAction, want: "::error::Action 'acme/greet/sub' is built from a Dockerfile; this runner has no builder. Use an image.\n"},
		"a build fails": {builder: fails(&builder.Failure{Text: "the build has failed (exit code 1)"}), args: anAction, want: group + "::error::Action 'acme/greet/sub' can't be built from its Dockerfile: the build has failed (exit code 1).\n"},
		"the container ends": {builder: fails(fmt.Errorf("%w: EOF", builder.ErrLost)), args: anAction,
			want: group + "::error::Action 'acme/greet/sub' can't be built from its Dockerfile: the container 'buildkit' of the pod has ended, or ends. The build may have used more memory than the pool allows.\n"},
		"another error": {builder: fails(errors.New("broken pipe")), args: anAction, want: group + "::error::broken pipe\n"},
		"nothing to run": {builder: fails(nil), args: `{"dockerfile": "/home/runner/_work/_actions/acme/greet/v1/sub/Dockerfile"}`,
			want: group + "::error::Image 'acme/greet/sub' of container 'step' has neither an entrypoint nor a command. Set one of them.\n"},
		"a path elsewhere": {builder: fails(nil), args: `{"dockerfile": "/etc/Dockerfile"}`,
			want: "::error::Action '/etc' can't be built: its Dockerfile '/etc/Dockerfile' is not below the runner's work directory.\n"},
		"an option": {builder: fails(nil), args: `{"dockerfile": "/home/runner/_work/a/b/Dockerfile", "createOptions": "--privileged"}`,
			want: "::error::Option '--privileged' of container 'step' is not available on this runner. Remove it, or use a pool that permits docker.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newStandIn(t)
			hook := pod.callWith(c.builder)
			require.Equal(t, 1, pod.run(hook, "run_container_step", c.args))
			require.Equal(t, c.want, pod.text())
			require.Empty(t, wishes(t, hook))
		})
	}
}

// What is started late ends by itself, since it is not wanted any more.
func TestDockerfileStep_IsCancelledWhileItIsBuilt(t *testing.T) {
	pod := newStandIn(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := pod.callWith(builds(func(ctx context.Context, _ builder.Request, _ io.Writer) (builder.Built, error) {
		cancel()
		<-ctx.Done()
		return builder.Built{}, ctx.Err()
	}))
	require.Equal(t, 1, pod.runWithin(ctx, c, "run_container_step", anAction))
	require.Contains(t, pod.text(), "::error::The job was cancelled.\n")
	require.Empty(t, wishes(t, c))
}

// cleanup_job ends what a hook has left that was killed.
func TestCleanup_EndsAnActionsContainer(t *testing.T) {
	pod := newStandIn(t)
	c := pod.call()
	require.NoError(t, os.MkdirAll(filepath.Join(c.JobDir, "action-1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(c.JobDir, "action-1", filepath.Base(jobcontainer.Wish("x"))), nil, 0o600))
	require.Equal(t, 0, pod.run(c, "cleanup_job", `null`))
	require.Len(t, pod.guard("action-1").ends, 1)
	require.Empty(t, wishes(t, c))
}
