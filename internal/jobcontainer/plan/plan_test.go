package plan

import (
	"bytes"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
)

// recorded returns the inputs that GitHub's own runner wrote to a hook.
func recorded(t testing.TB) []hook.Input {
	t.Helper()
	data, err := os.ReadFile("../hook/testdata/all.jsonl")
	require.NoError(t, err)
	var inputs []hook.Input
	for _, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		input, err := hook.Parse(line)
		require.NoError(t, err)
		inputs = append(inputs, input)
	}
	return inputs
}

func TestForJob_Recorded(t *testing.T) {
	input := recorded(t)[0].Prepare
	draft, err := ForJob(Job{Container: input.Container, Services: input.Services, Names: []string{"postgres"}}, Runner{Platform: "linux/amd64"})
	require.NoError(t, err)
	require.Equal(t, []jobcontainer.Wanted{{Role: jobcontainer.RoleJob, Image: "debian:12"}, {Role: jobcontainer.RoleService, Image: "postgres:17"}}, draft.Wanted())
	plan, err := draft.Complete(granted(draft, config{Env: []string{"PATH=/bin"}, Cmd: []string{"bash"}}, config{Entrypoint: []string{"docker-entrypoint.sh"}, Cmd: []string{"postgres"}, StopSignal: "SIGINT", ExposedPorts: []string{"5432/tcp"}}))
	require.NoError(t, err)
	require.Empty(t, plan.Warnings)
	job := plan.Containers[0]
	require.Equal(t, "job-a", job.Container)
	require.Equal(t, "job", job.Name)
	require.Nil(t, job.Argv)
	require.Equal(t, "/__w/app/app", job.WorkDir)
	require.Equal(t, []string{"PATH=/bin", "HOME=/github/home", "GITHUB_ACTIONS=true", "CI=true"}, job.Env)
	// The runner's directories are those that it names, and all else has the same path in the pod's volumes.
	require.Equal(t, []Link{{Path: "/github/home", Target: "/__w/_temp/_github_home"}, {Path: "/github/workflow", Target: "/__w/_temp/_github_workflow"}}, job.Links)
	postgres := plan.Containers[1]
	require.Equal(t, []string{"docker-entrypoint.sh", "postgres"}, postgres.Argv)
	require.Equal(t, "SIGINT", postgres.StopSignal)
	require.Equal(t, stopTimeout, postgres.StopTimeout)
	require.Equal(t, map[string]string{"5432": "5432"}, postgres.Ports)
	require.Equal(t, []HostName{{"127.0.0.1", "postgres"}}, plan.Hosts)
}

func TestForStep_Recorded(t *testing.T) {
	draft, err := ForStep(recorded(t)[4].Step, Runner{})
	require.NoError(t, err)
	require.Equal(t, []jobcontainer.Wanted{{Role: jobcontainer.RoleStep, Image: "alpine:3.20"}}, draft.Wanted())
	plan, err := draft.Complete(granted(draft, config{Entrypoint: []string{"/never"}, Cmd: []string{"never"}, User: "nobody"}))
	require.NoError(t, err)
	require.Empty(t, plan.Warnings)
	step := plan.Containers[0]
	require.Equal(t, []string{"/bin/sh", "echo", "a b", "c"}, step.Argv)
	require.Equal(t, "/github/workspace", step.WorkDir)
	require.Equal(t, "nobody", step.User)
	require.Contains(t, step.Env, `INPUT_ARGS=echo "a b" c`)
	require.Equal(t, []Link{{"/github/runner_temp", "/__w/_temp"}, {"/github/home", "/__w/_temp/_github_home"}, {"/github/workflow", "/__w/_temp/_github_workflow"},
		{"/github/file_commands", "/__w/_temp/_runner_file_commands"}, {"/github/workspace", "/__w/app/app"}}, step.Links)
	require.Empty(t, plan.Hosts)
	require.Empty(t, plan.Forwards)
}

func TestForScript_Recorded(t *testing.T) {
	inputs := recorded(t)
	exec, err := ForScript(inputs[1].Script, []string{"PATH=/image", "A=container", "CI=true"})
	require.NoError(t, err)
	require.Equal(t, []string{"sh", "-e", "/__w/_temp/7e82b7e0-9ae1-4b95-aa5b-77985d2a9dba.sh"}, exec.Argv)
	require.Equal(t, "/tmp", exec.WorkDir)
	require.Equal(t, []string{"PATH=/image", "A=8ebc5e29ed30c30864091ec9661caf58ff5aa20a", "CI=true"}, exec.Env[:3])
	exec, err = ForScript(inputs[3].Script, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"/__e/node20/bin/node", "/__w/app/app/./mine/i.js"}, exec.Argv)
}

func TestForScript_PrependsThePath(t *testing.T) {
	for base, want := range map[string]string{"PATH=/image": "PATH=/a:/b:/image", "X=1": "PATH=/a:/b:" + defaultPath} {
		exec, err := ForScript(hook.ScriptStepArgs{EntryPoint: "sh", PrependPath: []string{"/a", "/b"}}, []string{base})
		require.NoError(t, err)
		require.Contains(t, exec.Env, want)
	}
	_, err := ForScript(hook.ScriptStepArgs{EntryPoint: "sh", EntryPointArgs: []string{`"a`}}, nil)
	require.EqualError(t, err, "reading the arguments of sh: Arguments are invalid: a double quote is not closed.")
}

func TestComplete_Argv(t *testing.T) {
	image := config{Entrypoint: []string{"entry", "-x"}, Cmd: []string{"cmd"}}
	for _, c := range []struct {
		asked hook.Container
		want  []string
	}{
		{hook.Container{}, []string{"entry", "-x", "cmd"}},
		{hook.Container{EntryPointArgs: []string{"--a", `"b`, `c"`}}, []string{"entry", "-x", "--a", "b c"}},
		{hook.Container{EntryPoint: "/bin/e e"}, []string{"/bin/e e"}},
		{hook.Container{EntryPoint: "/e", EntryPointArgs: []string{"1"}, CreateOptions: "--entrypoint /f"}, []string{"/e", "1"}},
		{hook.Container{CreateOptions: "--entrypoint /f"}, []string{"/f"}},
		{hook.Container{CreateOptions: `--entrypoint ""`, EntryPointArgs: []string{"1", "2"}}, []string{"1", "2"}},
	} {
		plan, err := planned(service(c.asked), pool, image)
		require.NoError(t, err)
		require.Equal(t, c.want, plan.Containers[0].Argv)
	}
	_, err := planned(service(hook.Container{Image: "x", CreateOptions: `--entrypoint ""`}), pool, image)
	refused(t, err, "Image 'x' of container 'db' has neither an entrypoint nor a command. Set one of them.")
	_, err = planned(service(hook.Container{EntryPointArgs: []string{`"`}}), pool)
	refused(t, err, "Arguments of container 'db' are invalid: a double quote is not closed.")
}

func TestComplete_Env(t *testing.T) {
	asked := hook.Container{EnvironmentVariables: map[string]string{"CI": "no", "GITHUB_ACTIONS": "no", "E": ""}}
	plan, err := planned(service(asked), pool, config{Env: []string{"A=1", "A=2", "broken", "=x"}})
	require.NoError(t, err)
	require.Equal(t, []string{"A=2", "CI=no", "E=", "GITHUB_ACTIONS=true"}, plan.Containers[0].Env)
}

// What a job says about git stays, and what git would reject is git's to say. Job containers have the workspace where the runner says.
func TestComplete_GitTrustsTheWorkspaceOfActions(t *testing.T) {
	for given, want := range map[string][]string{
		"":                       {"PWD=/github/workspace", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		"-e GIT_CONFIG_COUNT=2":  {"PWD=/github/workspace", "GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_2=safe.directory", "GIT_CONFIG_VALUE_2=*"},
		"-e GIT_CONFIG_COUNT=-1": {"PWD=/github/workspace", "GIT_CONFIG_COUNT=-1"},
		"-e PWD=/x":              {"PWD=/x", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	} {
		draft, err := ForStep(hook.Container{Image: "x", WorkingDirectory: "/github/workspace", CreateOptions: given}, pool)
		require.NoError(t, err)
		plan, err := draft.Complete(granted(draft))
		require.NoError(t, err)
		require.ElementsMatch(t, append(want, "GITHUB_ACTIONS=true", "CI=true"), plan.Containers[0].Env, given)
	}
	plan, err := planned(container(hook.Container{WorkingDirectory: "/__w/app/app"}), pool)
	require.NoError(t, err)
	require.Equal(t, []string{"GITHUB_ACTIONS=true", "CI=true"}, plan.Containers[0].Env)
}

// Steps in a container build with the pod's daemon as those on the runner do.
func TestComplete_StepsFindThePodsBuilder(t *testing.T) {
	runner := pool
	own := []string{"BUILDKIT_HOST=unix:///bullpen/job/buildkitd.sock", "BUILDX_CONFIG=/bullpen/job/buildx", "BUILDX_BUILDER=bullpen"}
	runner.Environ = append([]string{"HOME=/home/runner"}, own...)
	job := hook.Container{Image: "job"}
	plan, err := planned(Job{Container: &job, Services: []hook.Container{{Image: "db"}}, Names: []string{"db"}}, runner)
	require.NoError(t, err)
	require.Equal(t, append([]string{"GITHUB_ACTIONS=true", "CI=true"}, own...), plan.Containers[0].Env)
	require.Equal(t, []string{"GITHUB_ACTIONS=true", "CI=true"}, plan.Containers[1].Env, "a service runs no step")
	draft, err := ForStep(hook.Container{Image: "x"}, runner)
	require.NoError(t, err)
	step, err := draft.Complete(granted(draft))
	require.NoError(t, err)
	require.Subset(t, step.Containers[0].Env, own)

	job.EnvironmentVariables = map[string]string{"BUILDX_BUILDER": "mine"}
	plan, err = planned(Job{Container: &job}, runner)
	require.NoError(t, err)
	require.Subset(t, plan.Containers[0].Env, []string{own[0], own[1], "BUILDX_BUILDER=mine"})
	runner.Environ = []string{"BUILDKIT_HOST=tcp://builder:1234", own[1], own[2]}
	plan, err = planned(Job{Container: &hook.Container{Image: "job"}}, runner)
	require.NoError(t, err)
	require.Equal(t, []string{"GITHUB_ACTIONS=true", "CI=true"}, plan.Containers[0].Env, "the pool has a builder of its own")
}

func TestComplete_StopTimeout(t *testing.T) {
	for option, seconds := range map[string]float64{"": 10, "--stop-timeout 0": 0, "--stop-timeout 5": 5, "--stop-timeout=-1": 600, "--stop-timeout 100000": 600} {
		plan, err := planned(service(hook.Container{CreateOptions: option}), pool, config{StopSignal: "NOPE"})
		require.NoError(t, err)
		require.InDelta(t, seconds, plan.Containers[0].StopTimeout.Seconds(), 0, option)
		require.Empty(t, plan.Containers[0].StopSignal, "an image's that does not exist is the default")
	}
}

// An answer to another request is an error of the fleet, and none of the user's.
func TestComplete_RefusesAnotherAnswer(t *testing.T) {
	draft, err := ForJob(services(hook.Container{Image: "x"}, hook.Container{Image: "y"}), pool)
	require.NoError(t, err)
	answer := granted(draft)
	for _, wrong := range [][]jobcontainer.Granted{nil, answer[:1], {answer[1], answer[0]}, {answer[0], {Role: jobcontainer.RoleService, Position: 1}}} {
		_, err = draft.Complete(wrong)
		require.ErrorContains(t, err, "planning a job: ")
	}
	_, err = ForJob(Job{Services: make([]hook.Container, 1)}, pool)
	require.EqualError(t, err, "planning a job: 0 names for 1 services")
}

func TestForJob_NamesAllProblemsAtOnce(t *testing.T) {
	_, err := ForJob(services(hook.Container{Image: "x", CreateOptions: "--privileged", PortMappings: []string{"x"}}, hook.Container{Image: "y", UserMountVolumes: []hook.Mount{{Source: "/dev/fuse", Target: "/data"}}}), pool)
	refused(t, err, "Option '--privileged' of container 'a' is not available on this runner. Remove it, or use a pool that permits docker.",
		"Port 'x' of container 'a' is invalid: must be CONTAINER or HOST:CONTAINER, with an optional /tcp or /udp.",
		"Host path '/dev/fuse' of volume '/dev/fuse:/data' is not available to job containers on this runner. Use a path below the workspace.")
}

// A directory that a newer runner mounts from elsewhere is no error, as steps may not need it.
func TestForJob_UnknownDirectoryOfTheRunner(t *testing.T) {
	plan, err := planned(container(hook.Container{SystemMountVolumes: []hook.Mount{{Source: "/opt/new", Target: "/__n"}}}), pool)
	require.NoError(t, err)
	require.Equal(t, []string{"The runner's directory '/opt/new' is not available in container 'job' at '/__n'."}, plan.Warnings)
}

func TestPorts(t *testing.T) {
	for text, want := range map[string]struct {
		ports    map[string]string
		forwards []Forward
	}{
		"80":                {map[string]string{"80": "80"}, nil},
		"80/tcp":            {map[string]string{"80": "80"}, nil},
		"80:80":             {map[string]string{"80": "80"}, nil},
		"8080:80/TCP":       {map[string]string{"80": "8080"}, []Forward{{0, "tcp", 8080, 80}}},
		"5353:53/udp":       {map[string]string{"53": "5353"}, []Forward{{0, "udp", 5353, 53}}},
		"127.0.0.1:8080:80": {map[string]string{"80": "8080"}, []Forward{{0, "tcp", 8080, 80}}},
		"[::1]:8080:80":     {map[string]string{"80": "8080"}, []Forward{{0, "tcp", 8080, 80}}},
		"127.0.0.1::80":     {map[string]string{"80": "80"}, nil},
		"7000-7002:80":      {map[string]string{"80": "7001"}, []Forward{{0, "tcp", 7001, 80}}}, // 7000 is taken
		"8000-8001:80-81":   {map[string]string{"80": "8000", "81": "8001"}, []Forward{{0, "tcp", 8000, 80}, {0, "tcp", 8001, 81}}},
		"79-81:80":          {map[string]string{"80": "80"}, nil},
		"90-91":             {map[string]string{"90": "90", "91": "91"}, nil},
		"132:132/sctp":      {map[string]string{"132": "132"}, nil},
	} {
		runner := pool
		runner.Taken = []Port{{7000, "tcp"}}
		plan, err := planned(service(hook.Container{PortMappings: []string{text}}), runner)
		require.NoError(t, err, text)
		require.Equal(t, want.ports, plan.Containers[0].Ports, text)
		require.Equal(t, want.forwards, plan.Forwards, text)
	}
	for text, why := range map[string]string{
		"": "must be CONTAINER or HOST:CONTAINER, with an optional /tcp or /udp", "x": "must be CONTAINER or HOST:CONTAINER, with an optional /tcp or /udp", "0": "must be CONTAINER or HOST:CONTAINER, with an optional /tcp or /udp",
		"65536": "must be CONTAINER or HOST:CONTAINER, with an optional /tcp or /udp", "9-8": "must be CONTAINER or HOST:CONTAINER, with an optional /tcp or /udp", "1-65535": "must be CONTAINER or HOST:CONTAINER, with an optional /tcp or /udp",
		"80:": "must be CONTAINER or HOST:CONTAINER, with an optional /tcp or /udp", "80/icmp": "the protocol must be tcp or udp", "host:80:80": "'host' is no IP address", "1-2:3-5": "both ranges must have the same length",
	} {
		_, err := ForJob(service(hook.Container{Image: "x", PortMappings: []string{text}}), pool)
		refused(t, err, "Port '"+text+"' of container 'db' is invalid: "+why+".")
	}
	_, err := ForJob(service(hook.Container{Image: "x", PortMappings: []string{"133:132/sctp"}}), pool)
	refused(t, err, "Port 132/sctp of container 'db' can't be mapped to another one on this runner. Use the same number for both.")
	_, err = ForJob(service(hook.Container{Image: "x", CreateOptions: "--expose x"}), pool)
	refused(t, err, "Option '--expose x' of container 'db' is invalid: must be a port or a range of ports.")
}

func TestPorts_OfTheOptions(t *testing.T) {
	plan, err := planned(service(hook.Container{CreateOptions: "-p 8080:80 -P"}), pool, config{ExposedPorts: []string{"80/tcp", "443/tcp", "broken"}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"80": "8080", "443": "443"}, plan.Containers[0].Ports)
}

// A job container's port can be opened, too.
func TestPorts_OfTheJobContainer(t *testing.T) {
	plan, err := planned(container(hook.Container{PortMappings: []string{"8080:80"}}), pool)
	require.NoError(t, err)
	require.Equal(t, []Forward{{0, "tcp", 8080, 80}}, plan.Forwards)
	plan, err = planned(Job{Container: &hook.Container{Image: "x"}, Services: []hook.Container{{Image: "y", PortMappings: []string{"8080:80"}}}, Names: []string{"job"}}, pool)
	require.NoError(t, err)
	require.Equal(t, []Forward{{1, "tcp", 8080, 80}}, plan.Forwards, "a service may have the name of the job container")
}

// A pool may have its tools in the runner's image (RUNNER_TOOL_CACHE), which no other container has.
func TestTools_AreInTheWorkDirectory(t *testing.T) {
	mounted := func(source, target string) hook.Container {
		return hook.Container{SystemMountVolumes: []hook.Mount{{Source: "/home/runner/_work", Target: "/__w"}, {Source: source, Target: target}}}
	}
	plan, err := planned(container(mounted("/opt/hostedtoolcache", "/__t")), pool)
	require.NoError(t, err)
	require.Equal(t, []Volume{{Text: "/__t", Source: "/__w/_tool", Target: "/__t", Keep: true, Optional: true}}, plan.Containers[0].Volumes)
	require.Equal(t, []string{"The runner's tools in '/opt/hostedtoolcache' are not available in container 'job'."}, plan.Notes)
	require.Empty(t, plan.Warnings, "each job would have it")
	for _, usual := range []hook.Container{mounted("/home/runner/_work/_tool", "/__t"), mounted("/home/runner/_work/_tool", "/__w/_tool")} {
		plan, err = planned(container(usual), pool)
		require.NoError(t, err)
		require.Empty(t, plan.Containers[0].Volumes)
		require.Empty(t, plan.Warnings)
	}
}

func FuzzForJob(f *testing.F) {
	f.Add("8080:80/tcp", "data", "/x", "--expose 1-3 -v a1:/b", "ghcr.io/a/b:c@d", `"a b"`)
	f.Add("[::1]:1-2:3-4/udp", "/home/runner/_work/x", "/y/..", "--tmpfs /z", "x", "")
	f.Fuzz(func(t *testing.T, port, source, target, text, image, args string) {
		asked := hook.Container{Image: image, PortMappings: []string{port}, UserMountVolumes: []hook.Mount{{Source: source, Target: target}}, CreateOptions: text, EntryPointArgs: strings.Split(args, " ")}
		plan, err := planned(Job{Container: &hook.Container{Image: "x"}, Services: []hook.Container{asked}, Names: []string{"db"}}, pool)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		for _, container := range plan.Containers {
			for _, volume := range container.Volumes {
				require.True(t, volume.Source == "/__w" || strings.HasPrefix(volume.Source, "/__w/"), volume.Source)
				require.Equal(t, path.Clean(volume.Source), volume.Source)
				require.True(t, strings.HasPrefix(volume.Target, "/"))
			}
		}
		for _, forward := range plan.Forwards {
			require.NotEqual(t, forward.HostPort, forward.Port)
		}
	})
}
