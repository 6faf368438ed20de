package jobcontainers

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
)

// The runner shows the hook's exit code as the step's.
func TestSteps_ExitWithTheirOwnCode(t *testing.T) {
	j := startJob(t, debian())
	j.prepared(jobContainer("debian:12", nil))
	for _, code := range []string{"0", "1", "42", "127", "255"} {
		answer := j.run(j.command(nil, Program, "exit", code))
		require.Equal(t, code, strconv.Itoa(answer.Code))
		require.NotContains(t, answer.Log, "::error::", "the user's own failure")
	}
	answer := j.run(j.script("kill -KILL $$", nil))
	require.Equal(t, 137, answer.Code)
}

// Variables of the container, of the step, and PATH; the umask lets the runner change what a step leaves.
func TestSteps_HaveTheEnvironmentOfTheContainer(t *testing.T) {
	image := debian()
	image.Config.Env = []string{"FROM_IMAGE=image", "PATH=/opt/image:/usr/bin:/bin"}
	j := startJob(t, image)
	j.prepared(jobContainer("debian:12", object{
		"environmentVariables": object{"HOME": "/github/home", "FROM_JOB": "job", "BOTH": "job"}, "createOptions": "-e FROM_OPTION=option",
	}))
	call := j.script("echo $FROM_IMAGE $FROM_JOB $FROM_OPTION $BOTH $HOME $GITHUB_ACTIONS $CI; echo PATH=$PATH; umask; pwd; echo A=1 >> $GITHUB_ENV; mkdir -p /__w/app/made/deep", object{
		"BOTH": "step", "GITHUB_ENV": "/__w/_temp/_runner_file_commands/set_env_1",
	})
	call.Stdin = []byte(strings.Replace(string(call.Stdin), `"prependPath":[]`, `"prependPath":["/root/.cargo/bin","/opt/x"]`, 1))
	j.pod.WriteWork(t, "_temp/_runner_file_commands/set_env_1", "", 0o644)
	answer := j.run(call)
	require.Zero(t, answer.Code, answer.Log)
	require.Equal(t, "image job option step /github/home true true\nPATH=/root/.cargo/bin:/opt/x:/opt/image:/usr/bin:/bin\n0002\n/__w/app/app\n", answer.Log)
	output, code := j.pod.Runner(t, "/bin/sh", "-ec", "cat _work/_temp/_runner_file_commands/set_env_1; echo B=2 > _work/app/made/deep/file; rm -r _work/app/made")
	require.Zero(t, code, output)
	require.Equal(t, "A=1\n", output)
}

// "user of the image", --user, --workdir, --ulimit nofile, --env-file, --hostname, --add-host.
func TestSteps_ObeyOptions(t *testing.T) {
	image := debian()
	image.Config.User = "worker"
	j := startJob(t, image)
	j.pod.WriteWork(t, "app/app/some.env", "FROM_FILE=file\n", 0o644)
	j.prepared(jobContainer("debian:12", options("--ulimit nofile=512:1024 --env-file /home/runner/_work/app/app/some.env --hostname builder --add-host registry.test:10.9.8.7")))
	answer := j.run(j.script("id -un; ulimit -n; ulimit -Hn; echo $FROM_FILE; getent hosts builder registry.test", nil))
	require.Zero(t, answer.Code, answer.Log)
	require.Equal(t, "worker\n512\n1024\nfile\n127.0.0.1       builder\n10.9.8.7        registry.test\n", answer.Log)
}

// "job image without a shell".
func TestSteps_WithoutAShell(t *testing.T) {
	j := startJob(t, Image{Name: "scratch:1", Bare: true})
	j.prepared(jobContainer("scratch:1", nil))
	require.Contains(t, j.program("args", `"a`, `b"`), `["a b"]`)
	answer := j.run(j.script("true", nil))
	require.Equal(t, 127, answer.Code)
	require.Contains(t, answer.Log, "::error::Shell 'sh' is not in image 'scratch:1'.")
}

// The job container's own entrypoint does not run, and Alpine is recognized.
func TestSteps_InAlpine(t *testing.T) {
	j := startJob(t, Image{Name: "alpine:3.20", OSRelease: "NAME=\"Alpine Linux\"\nID=alpine\n", Config: jobcontainer.ImageConfig{Entrypoint: []string{"/bin/sh", "-c", "touch /__w/_temp/ran"}}})
	answer := j.prepared(jobContainer("alpine:3.20", nil))
	require.Contains(t, answer.Response, `"isAlpine":true`)
	require.Equal(t, 1, j.run(j.command(nil, Program, "exists", "/__w/_temp/ran")).Code)
}

// The directories of GitHub's runner, by the names that the runner uses in job containers and in container actions.
func TestSteps_FindTheRunnersDirectories(t *testing.T) {
	j := startJob(t, debian(), Image{Name: "alpine:3.20"})
	j.pod.WriteWork(t, "_temp/_github_home/home", "", 0o644)
	j.pod.WriteWork(t, "_temp/_github_workflow/event.json", "{}", 0o644)
	j.pod.WriteWork(t, "_temp/_runner_file_commands/set_env_1", "", 0o644)
	j.pod.WriteWork(t, "app/app/checked-out", "", 0o644)
	j.pod.WriteExternals(t, "node20/bin/node", "#!/bin/sh\n")
	j.prepared(jobContainer("debian:12", nil))
	for _, name := range []string{"/github/home/home", "/github/workflow/event.json", "/__w/app/app/checked-out", "/__e/node20/bin/node", "/__w/_temp/_runner_file_commands/set_env_1"} {
		j.program("exists", name)
	}
	mounts := []object{
		mountOf("/var/run/docker.sock", "/var/run/docker.sock"), mountOf(runnerWork+"/_temp", "/github/runner_temp"), mountOf(runnerWork+"/_temp/_github_home", "/github/home"),
		mountOf(runnerWork+"/_temp/_github_workflow", "/github/workflow"), mountOf(runnerWork+"/_temp/_runner_file_commands", "/github/file_commands"), mountOf(runnerWork+"/app/app", "/github/workspace"),
	}
	for _, name := range []string{"/github/home/home", "/github/workflow/event.json", "/github/workspace/checked-out", "/github/file_commands/set_env_1", "/github/runner_temp/_github_home"} {
		answer := j.run(j.call("run_container_step", container("alpine:3.20", object{
			"entryPoint": Program, "entryPointArgs": []string{"exists", name}, "workingDirectory": "/github/workspace", "systemMountVolumes": mounts,
		})))
		require.Zero(t, answer.Code, "%s\n%s", name, answer.Log)
	}
}

// Actions run git as root in a workspace that is the runner's, and trust it by the path that they have it at.
func TestSteps_OfActionsUseGitInTheWorkspace(t *testing.T) {
	j := startJob(t, Image{Name: "alpine:3.20"})
	j.pod.WriteWork(t, "app/app/checked-out", "", 0o644)
	output, code := j.pod.Runner(t, "/bin/sh", "-c", "cd _work/app && chmod 777 . app && git init -q app/lib && git init -q app")
	require.Zero(t, code, output)
	run := func(script string, environment object) Answer {
		j.pod.WriteWork(t, "app/app/run.sh", script, 0o755)
		return j.run(j.call("run_container_step", container("alpine:3.20", object{
			"entryPoint": "/github/workspace/run.sh", "workingDirectory": "/github/workspace", "environmentVariables": environment,
			"systemMountVolumes": []object{mountOf(runnerWork+"/_temp", "/github/runner_temp"), mountOf(runnerWork+"/app/app", "/github/workspace")},
		})))
	}
	answer := run("#!/bin/sh\npwd; git status --porcelain && git -C lib status --porcelain && git config user.name\n", object{
		"HOME": "/root", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "Ada",
	})
	require.Zero(t, answer.Code, answer.Log)
	require.Equal(t, "/github/workspace\n?? checked-out\n?? lib/\n?? run.sh\nAda\n", answer.Log)
}

// SIGINT, SIGTERM, then the end of the hook: each reaches the step's processes, and nothing of them is left.
func TestSteps_AreCancelled(t *testing.T) {
	j := startJob(t, debian())
	j.prepared(jobContainer("debian:12", nil))
	obeys := j.pod.StartHook(t, j.script("trap 'echo interrupted; exit 5' INT; echo working; sleep 600 & wait", nil))
	require.Eventually(t, func() bool { return strings.Contains(obeys.Log(), "working") }, time.Minute, time.Millisecond)
	obeys.Signal(t, "SIGINT")
	answer := obeys.Wait(t)
	require.Equal(t, 5, answer.Code, answer.Log)
	require.Contains(t, answer.Log, "interrupted")

	deaf := j.pod.StartHook(t, j.script("trap '' INT TERM; echo working; while :; do touch /__w/_temp/alive; sleep 0.05; done", nil))
	require.Eventually(t, func() bool { return strings.Contains(deaf.Log(), "working") }, time.Minute, time.Millisecond)
	deaf.Signal(t, "SIGINT")
	deaf.Signal(t, "SIGTERM")
	deaf.Signal(t, "SIGKILL") // as the runner does at last
	deaf.Wait(t)
	require.Eventually(t, func() bool {
		answer := j.run(j.script("rm -f /__w/_temp/alive; sleep 0.3; test ! -e /__w/_temp/alive", nil))
		return answer.Code == 0
	}, time.Minute, time.Millisecond, "the step's processes are gone")
}

// A step that ignores everything is ended by the hook itself, within the runner's own times.
func TestSteps_AreKilledAtLast(t *testing.T) {
	j := startJob(t, debian())
	j.prepared(jobContainer("debian:12", nil))
	hook := j.pod.StartHook(t, j.command(nil, Program, "deaf"))
	require.Eventually(t, func() bool { return strings.Contains(hook.Log(), "deaf") }, time.Minute, time.Millisecond)
	begun := time.Now()
	hook.Signal(t, "SIGINT")
	answer := hook.Wait(t)
	require.Equal(t, 137, answer.Code)
	require.GreaterOrEqual(t, time.Since(begun), 9*time.Second)
	require.Less(t, time.Since(begun), 40*time.Second)
}

// "container killed for memory": the step fails at once, with the reason.
func TestSteps_WhoseContainerIsKilled(t *testing.T) {
	j := startJob(t, debian())
	j.prepared(jobContainer("debian:12", nil))
	hook := j.pod.StartHook(t, j.command(nil, Program, "deaf"))
	require.Eventually(t, func() bool { return strings.Contains(hook.Log(), "deaf") }, time.Minute, time.Millisecond)
	j.pod.Explain(t, letter.Failure{Container: "job-1-0", Text: "It was killed.", OutOfMemory: true, Final: true})
	j.pod.Kill(t, "job-1-0")
	begun := time.Now()
	answer := hook.Wait(t)
	require.Less(t, time.Since(begun), 30*time.Second, "the program would run for 10 minutes")
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "::error::Container 'job' was killed: the job used more memory than the pool allows (16Gi).")
	answer = j.run(j.command(nil, Program, "id"))
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "::error::Container 'job' was killed")
	j.cleanup()
}

// The kernel kills a step's process at the pod's limit: the step fails with the reason, and the container goes on.
func TestSteps_WhoseProcessIsKilledForMemory(t *testing.T) {
	j := startJob(t, debian())
	j.pod.LimitsMemory(t)
	j.prepared(jobContainer("debian:12", nil))
	for _, call := range []Call{j.command(nil, Program, "hog"), j.script(Program+" hog; exit $?", nil)} {
		answer := j.run(call)
		require.Equal(t, 137, answer.Code, answer.Log)
		require.Contains(t, answer.Log, "::error::A process of container 'job' was killed for lack of memory. The pool allows 16Gi.")
	}
	answer := j.run(j.command(nil, Program, "id"))
	require.Zero(t, answer.Code, answer.Log)
	require.True(t, j.pod.Alive("job-1-0"))
	j.cleanup()
}

// "container action joins the job's network", with its image's entrypoint, arguments and exit code; without prepare_job, too.
func TestContainerSteps_RunTheirImage(t *testing.T) {
	image := Image{Name: "acme/action:1", Config: jobcontainer.ImageConfig{Entrypoint: []string{Program, "args"}, Cmd: []string{"of", "the image"}, WorkingDir: "/srv"}}
	j := startJob(t, image)
	step := func(more object) Answer {
		return j.run(j.call("run_container_step", container("acme/action:1", more)))
	}
	answer := step(nil)
	require.Zero(t, answer.Code, answer.Log)
	require.Contains(t, answer.Log, `["of" "the image"]`)
	answer = step(object{"entryPointArgs": []string{`"a`, `b"`, "c"}})
	require.Contains(t, answer.Log, `["a b" "c"]`)
	answer = step(object{"entryPoint": Program, "entryPointArgs": []string{"exit", "7"}})
	require.Equal(t, 7, answer.Code, answer.Log)
	answer = step(object{"entryPoint": Program, "entryPointArgs": []string{"env", "SECRET"}, "environmentVariables": object{"SECRET": "s3cr3t"}})
	require.Contains(t, answer.Log, "s3cr3t")
	for _, name := range j.pod.Containers() {
		j.ended(name)
	}
	require.Len(t, j.pod.Containers(), 4, "a second step with one image needs another container")
	j.cleanup()
}

// "docker build in action".
func TestContainerSteps_OfADockerfileAreRefused(t *testing.T) {
	j := startJob(t)
	call := j.call("run_container_step", container("", object{"image": nil, "dockerfile": runnerWork + "/_actions/acme/build/v1/Dockerfile"}))
	call.Environment = []string{"GITHUB_ACTION_REPOSITORY=acme/build"}
	answer := j.run(call)
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "::error::Action 'acme/build' is built from a Dockerfile; this runner has no builder. Use an image.")
	require.Empty(t, j.pod.Requests())
}

func TestContainerSteps_AreCancelled(t *testing.T) {
	j := startJob(t, Image{Name: "acme/action:1"})
	hook := j.pod.StartHook(t, j.call("run_container_step", container("acme/action:1", object{"entryPoint": "/bin/sh", "entryPointArgs": []string{"-c", `"trap`, `'exit`, `5'`, "INT;", "echo", "working;", "sleep", "600", "&", `wait"`}})))
	require.Eventually(t, func() bool { return strings.Contains(hook.Log(), "working") }, time.Minute, time.Millisecond, hook.Log())
	hook.Signal(t, "SIGINT")
	require.Equal(t, 5, hook.Wait(t).Code)
	j.ended("step-1-0")
}

// The first process of a container is the guard, whatever the job has written before (JOB-1): otherwise its own program could report that a
// container has removed its files, for example.
func TestContainerSteps_JOB1_AJobCannotReplaceTheirGuard(t *testing.T) {
	action := Image{Name: "acme/action:1"}
	j := startJob(t, debian(), action)
	j.prepared(jobContainer("debian:12", nil))
	answer := j.run(j.script(`id -u
		for agent in `+jobcontainer.Binary+` /bullpen/job/bullpen-agent; do
			rm -f $agent 2>/dev/null || true
			if cp `+Program+` $agent 2>/dev/null; then echo "wrote $agent"; fi
		done`, nil))
	require.Zero(t, answer.Code, answer.Log)
	require.Equal(t, "0\nwrote /bullpen/job/bullpen-agent\n", answer.Log, "as root")
	output, code := j.pod.Runner(t, "/bin/sh", "-ec", "test ! -e "+jobcontainer.GuardDir)
	require.Zero(t, code, "the runner's container does not have it: %s", output)
	j.pod.WriteWork(t, "_temp/first.sh", "ls -l /proc/1/exe; exec /proc/1/exe --version", 0o755)
	answer = j.run(j.call("run_container_step", container("acme/action:1", object{"entryPoint": "/bin/sh", "entryPointArgs": []string{"/__w/_temp/first.sh"}})))
	require.Zero(t, answer.Code, answer.Log)
	require.Contains(t, answer.Log, jobcontainer.Binary)
	require.Contains(t, answer.Log, "bullpen-agent version")
	j.cleanup()
}
