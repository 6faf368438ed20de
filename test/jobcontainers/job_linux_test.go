package jobcontainers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// runnerAgent is where the runner's container has the agent.
const runnerAgent = runnerpod.MountShared + "/" + runnerpod.FileAgent

// runnerEnvironment is as in the recordings of GitHub's worker.
func runnerEnvironment() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/runner", "ACTIONS_RUNNER_CONTAINER_HOOKS=/home/runner/hook.sh", "CI=true", "GITHUB_ACTIONS=true",
		"GITHUB_JOB=t", "GITHUB_REPOSITORY=acme/app", "GITHUB_WORKSPACE=/home/runner/_work/app/app", "RUNNER_TEMP=/home/runner/_work/_temp",
		"RUNNER_TOOL_CACHE=/home/runner/_work/_tool", "RUNNER_WORKSPACE=/home/runner/_work/app", "RUNNER_NAME=runner-7", "RUNNER_OS=Linux", "RUNNER_ARCH=X64",
		"BULLPEN_POD_NAME=runner-7", "BULLPEN_RESOURCES=8 CPU, 16Gi",
	}
}

// object is a JSON object as GitHub's worker writes it.
type object = map[string]any

// job is one job in a pod: it calls the hook as the worker does, with the state of the call before.
type job struct {
	*testing.T
	pod   Pod
	state json.RawMessage
	calls int
}

// backend makes the pods of all rows.
var backend Backend = processes{}

func startJob(t *testing.T, images ...Image) *job {
	t.Helper()
	return &job{T: t, pod: backend.Start(t, images...)}
}

// debian is an image for jobs.
func debian() Image { return Image{Name: "debian:12", OSRelease: "ID=debian\n"} }

// server is an image of a service that listens on a port, and says so to its clients.
func server(name string, port string) Image {
	return Image{Name: name, OSRelease: "ID=debian\n", Config: jobcontainer.ImageConfig{
		Entrypoint: []string{Program, "serve"}, Cmd: []string{port}, ExposedPorts: []string{port + "/tcp"},
	}}
}

// container is a container object of the worker, with more fields.
func container(image string, more object) object {
	c := object{
		"image": image, "dockerfile": nil, "entryPointArgs": []string{}, "entryPoint": nil, "workingDirectory": nil, "createOptions": nil, "registry": nil,
		"environmentVariables": object{}, "portMappings": []string{}, "systemMountVolumes": []object{}, "userMountVolumes": []object{},
	}
	for name, value := range more {
		c[name] = value
	}
	return c
}

// jobContainer is the container of a job, with the system's mounts.
func jobContainer(image string, more object) object {
	mounts := []object{mountOf("/var/run/docker.sock", "/var/run/docker.sock")}
	for source, target := range map[string]string{
		runnerWork: "/__w", "/home/runner/externals": "/__e", runnerWork + "/_temp": "/__w/_temp", runnerWork + "/_actions": "/__w/_actions", runnerWork + "/_tool": "/__w/_tool",
		runnerWork + "/_temp/_github_home": "/github/home", runnerWork + "/_temp/_github_workflow": "/github/workflow",
	} {
		mounts = append(mounts, mountOf(source, target))
	}
	c := container(image, object{"workingDirectory": "/__w/app/app", "environmentVariables": object{"HOME": "/github/home"}, "systemMountVolumes": mounts})
	for name, value := range more {
		c[name] = value
	}
	return c
}

func mountOf(source, target string) object {
	return object{"userProvidedValue": nil, "sourceVolumePath": source, "targetVolumePath": target, "readOnly": target == "/__e"}
}

// call makes a command of the worker.
func (j *job) call(command string, args any) Call {
	j.Helper()
	j.calls++
	text, err := json.Marshal(object{
		"command": command, "responseFile": fmt.Sprintf("%s/_temp/_runner_hook_responses/%08d-c5ef-4cee-90d9-7489f08c99fd.json", runnerWork, j.calls), "args": args, "state": j.state,
	})
	require.NoError(j, err)
	return Call{Stdin: text}
}

// hook calls the hook, and keeps the state of its answer.
func (j *job) hook(command string, args any) Answer {
	j.Helper()
	answer := j.pod.Hook(j.Context(), j.T, j.call(command, args))
	j.keep(answer)
	return answer
}

func (j *job) keep(answer Answer) {
	var response struct {
		State json.RawMessage `json:"state"`
	}
	if answer.Code == 0 && strings.TrimSpace(answer.Response) != "" {
		require.NoError(j, json.Unmarshal([]byte(answer.Response), &response))
	}
	if len(response.State) > 0 && string(response.State) != "null" {
		j.state = response.State
	}
}

// prepare calls prepare_job. container is nil for a job with services only.
func (j *job) prepare(container object, services ...object) Answer {
	j.Helper()
	args := object{"container": nil, "services": append([]object{}, services...)}
	if container != nil {
		args["container"] = container
	}
	return j.hook("prepare_job", args)
}

// prepared is prepare, which must succeed.
func (j *job) prepared(container object, services ...object) Answer {
	j.Helper()
	answer := j.prepare(container, services...)
	require.Zero(j, answer.Code, answer.Log)
	return answer
}

// script is a `run:` step with sh.
func (j *job) script(text string, env object) Call {
	j.Helper()
	name := fmt.Sprintf("_temp/step-%d.sh", j.calls)
	j.pod.WriteWork(j.T, name, text, 0o755)
	return j.command(env, "sh", "-e", "/__w/"+name)
}

// command is a step that runs a program.
func (j *job) command(env object, argv ...string) Call {
	j.Helper()
	if env == nil {
		env = object{}
	}
	return j.call("run_script_step", object{
		"entryPoint": argv[0], "entryPointArgs": argv[1:], "environmentVariables": env, "prependPath": []string{}, "workingDirectory": "/__w/app/app",
	})
}

// run runs a step.
func (j *job) run(call Call) Answer {
	j.Helper()
	return j.pod.Hook(j.Context(), j.T, call)
}

// program is a step that runs the program of this package, which must succeed, and returns its output.
func (j *job) program(args ...string) string {
	j.Helper()
	answer := j.run(j.command(nil, append([]string{Program}, args...)...))
	require.Zero(j, answer.Code, answer.Log)
	return answer.Log
}

// cleanup calls cleanup_job, which must succeed, and leave no container.
func (j *job) cleanup() string {
	j.Helper()
	answer := j.hook("cleanup_job", object{})
	require.Zero(j, answer.Code, answer.Log)
	for _, name := range j.pod.Containers() {
		j.ended(name)
	}
	return answer.Log
}

// ended waits until a container has ended.
func (j *job) ended(container string) {
	j.Helper()
	require.Eventually(j, func() bool { return !j.pod.Alive(container) }, await.Limit, 5*time.Millisecond, "container %s ends", container)
}
