package runner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

const wrapped = "Executing the custom container implementation failed. Please contact your self hosted runner administrator."

// hooked is a trial whose containers are a hook's. The script has the input in $input and the file of the answer in $response.
func hooked(t testing.TB, script string, more ...string) *trial {
	t.Helper()
	x := newTrial(t, false)
	dir := t.TempDir()
	file := filepath.Join(dir, "hook.sh")
	head := "input=$(cat); echo \"$input\" >> " + dir + "/calls\nresponse=$(printf '%s' \"$input\" | sed 's/.*\"responseFile\":\"\\([^\"]*\\)\".*/\\1/')\n" +
		"command=$(printf '%s' \"$input\" | sed 's/{\"command\":\"\\([^\"]*\\)\".*/\\1/')\n"
	require.NoError(t, os.WriteFile(file, []byte(head+script), 0o644))
	x.opts.Environ = append(append(x.opts.Environ, envContainerHooks+"="+file), more...)
	return x
}

// calls are the inputs that the hook has read.
func (x *trial) calls() []hookCallInput {
	file := ""
	for _, e := range x.opts.Environ {
		if hook, ok := strings.CutPrefix(e, envContainerHooks+"="); ok {
			file = filepath.Join(filepath.Dir(hook), "calls")
		}
	}
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(x.t, err)
	var out []hookCallInput
	for line := range strings.Lines(string(text)) {
		var call hookCallInput
		require.NoError(x.t, json.Unmarshal([]byte(line), &call))
		out = append(out, call)
	}
	return out
}

type hookCallInput struct {
	Command      string
	ResponseFile string
	Args         struct {
		Container, Services  any
		EntryPoint           string
		EntryPointArgs       []string
		PrependPath          []string
		WorkingDirectory     string
		Image, Dockerfile    string
		EnvironmentVariables map[string]string
	}
	State any
}

func (x *trial) commands() (names []string) {
	for _, call := range x.calls() {
		names = append(names, call.Command)
	}
	return names
}

func (x *trial) job(jobs string) *trial {
	x.t.Helper()
	x.service.queue(jobs)
	x.start()
	require.NoError(x.t, x.wait())
	require.NotNil(x.t, x.service.completed)
	return x
}

const prepared = `[ $command != prepare_job ] || echo '{"isAlpine": false}' > "$response"` + "\n"

const inContainer = "  a: {runs-on: x, container: 'debian:12', steps: [{name: one, run: 'true'}, {name: two, run: 'true', if: always()}]}"

func TestContainers_TheHookIsCalledForEverythingInOrder(t *testing.T) {
	x := hooked(t, prepared+`
case $command in
run_script_step) echo '{"state": {"n": 2}}' > "$response"; echo ::notice::seen; echo 'X=y' >> $(printf '%s' "$input" | sed 's|.*"GITHUB_ENV":"/__w\([^"]*\)".*|'"$RUNNER_WORKSPACE"'/..\1|') ;;
esac`).job(`
  a:
    runs-on: x
    container: {image: 'docker://debian:12', env: {A: "${{ secrets.PASSWORD }}"}, credentials: {username: me, password: "${{ secrets.PASSWORD }}"}, volumes: ['data:/data:ro', '/only'], ports: [80], options: --cpus 1}
    services: {db: {image: ghcr.io/acme/db:1, entrypoint: run, command: 'a "b c"'}, none: {image: "${{ github.head_ref }}"}}
    steps:
      - {name: one, run: echo one, shell: bash, working-directory: sub}
      - {name: two, run: 'test "${{ env.X }}" = y'}
`)
	s := x.service
	require.Equal(t, "succeeded", s.completed.Conclusion, s.jobLog())
	require.Equal(t, []string{"prepare_job", "run_script_step", "run_script_step", "cleanup_job"}, x.commands())
	var names []string
	for _, r := range s.completed.StepResults {
		names = append(names, r.Name)
	}
	require.Equal(t, []string{"Set up job", "Initialize containers", "one", "two", "Stop containers", "Complete job"}, names)
	calls := x.calls()
	require.Nil(t, calls[1].State)
	require.Equal(t, map[string]any{"n": 2.0}, calls[2].State, "the state of an answer goes into the next call")
	require.Equal(t, "bash", calls[1].Args.EntryPoint)
	require.Equal(t, []string{"--noprofile", "--norc", "-e", "-o", "pipefail"}, calls[1].Args.EntryPointArgs[:5])
	require.True(t, strings.HasPrefix(calls[1].Args.EntryPointArgs[5], "/__w/_temp/"))
	require.Equal(t, "/__w/shop/shop/sub", calls[1].Args.WorkingDirectory)
	require.Equal(t, "y", calls[2].Args.EnvironmentVariables["X"])
	c := calls[0].Args.Container.(map[string]any)
	require.Equal(t, "debian:12", c["image"])
	require.Equal(t, "--cpus 1", c["createOptions"])
	require.Equal(t, map[string]any{"A": "hunter22", "HOME": "/github/home"}, c["environmentVariables"])
	require.Equal(t, map[string]any{"username": "me", "password": "hunter22", "serverUrl": ""}, c["registry"])
	require.Equal(t, []any{
		map[string]any{"userProvidedValue": "data:/data:ro", "sourceVolumePath": "data", "targetVolumePath": "/data", "readOnly": true},
		map[string]any{"userProvidedValue": "/only", "sourceVolumePath": nil, "targetVolumePath": "/only", "readOnly": false},
	}, c["userMountVolumes"])
	services := calls[0].Args.Services.([]any)
	require.Len(t, services, 1)
	service := services[0].(map[string]any)
	require.Equal(t, "run", service["entryPoint"])
	require.Equal(t, []any{"a", `"b`, `c"`}, service["entryPointArgs"], "quotes stay in the pieces")
	require.Contains(t, s.stepLog("Set up job"), "The service 'none' will not be started because the container definition has an empty image.")
	require.Contains(t, s.stepLog("Initialize containers"), "##[group]Run '"+x.hook()+"'")
	require.Equal(t, "seen", s.completed.StepResults[2].Annotations[0].Message, "the hook's output is the step's")
	for _, call := range calls {
		require.NoFileExists(t, call.ResponseFile)
	}
	require.NotContains(t, s.jobLog(), "hunter22")
}

func (x *trial) hook() string {
	for _, e := range x.opts.Environ {
		if hook, ok := strings.CutPrefix(e, envContainerHooks+"="); ok {
			return hook
		}
	}
	return ""
}

// What GitHub's worker can't do with an answer, in its words. Those with a cause are wrapped: the cause is in the debug log.
func TestContainers_AnAnswerThatCannotBeUsedFailsTheJob(t *testing.T) {
	const services = "  a: {runs-on: x, services: {db: postgres}, steps: [{name: one, run: 'true'}]}"
	const outOfRange = "Index was out of range. Must be non-negative and less than the size of the collection. (Parameter 'index')"
	const null = "Object reference not set to an instance of an object."
	for name, tc := range map[string]struct{ script, jobs, message, debug string }{
		"no answer":                   {"", inContainer, wrapped, "Response file could not be read at 'HOOK' running command 'PrepareJob'"},
		"null":                        {`echo null > "$response"`, inContainer, wrapped, "Response file could not be read"},
		"deleted":                     {`rm "$response"`, inContainer, wrapped, "Response file is required but not found for the hook script at 'HOOK' running command 'PrepareJob'"},
		"no isAlpine":                 {`echo '{}' > "$response"`, inContainer, wrapped, "The property 'isAlpine' is required but was not found in the response file."},
		"no JSON":                     {`echo '{"isAlpine"' > "$response"`, inContainer, wrapped, "reading the answer"},
		"state is a list":             {`echo '{"isAlpine": true, "state": [1]}' > "$response"`, inContainer, wrapped, "its state is not an object"},
		"no answer, services only":    {"", services, null, ""},
		"id without container":        {`echo '{"context": {"container": {"id": "x"}}}' > "$response"`, services, null, ""},
		"services are null":           {`echo '{"context": {"services": null}}' > "$response"`, services, null, ""},
		"a service is null":           {`echo '{"context": {"services": [null]}}' > "$response"`, services, null, ""},
		"a service without ports":     {`echo '{"context": {"services": [{"id": "x", "network": "y"}]}}' > "$response"`, services, null, ""},
		"more services than expected": {`echo '{"isAlpine": false, "context": {"services": [{"ports": {}}]}}' > "$response"`, inContainer, outOfRange, ""},
		"exit code":                   {"exit 3", inContainer, wrapped, "The hook script at 'HOOK' running command 'PrepareJob' did not execute successfully"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := hooked(t, "[ $command = prepare_job ] || exit 0\n"+tc.script).job(tc.jobs)
			log := x.service.stepLog("Initialize containers")
			require.Contains(t, log, "##[error]"+tc.message+"\n")
			require.Contains(t, log, strings.ReplaceAll(tc.debug, "HOOK", x.hook()))
			require.Equal(t, strings.Contains(tc.script, "exit 3"), strings.Contains(log, "##[error]Process completed with exit code 3.\n"))
			require.Equal(t, "failed", x.service.completed.Conclusion)
			require.Equal(t, "skipped", x.service.conclusions()["one"])
			require.Equal(t, "succeeded", x.service.conclusions()["Stop containers"])
			require.Equal(t, "cleanup_job", x.commands()[len(x.commands())-1], "also after a prepare_job that failed")
		})
	}
}

func TestContainers_AnswersThatGitHubsWorkerTakes(t *testing.T) {
	for name, answer := range map[string]string{
		"no context": `{"isAlpine": true}`, "no services": `{"isAlpine": true, "context": {"container": {"id": "c"}}}`,
		"fewer services": `{"isAlpine": false, "context": {"services": []}}`, "numbers as ports": `{"isAlpine": false, "context": {"services": [{"id": null, "network": "n", "ports": {"80": 8080}}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := hooked(t, "[ $command != prepare_job ] || echo '"+answer+"' > \"$response\"").job(
				"  a: {runs-on: x, container: c, services: {web: nginx}, steps: [{name: one, run: \"${{ job.services.web.ports['80'] }}|${{ job.services.web.network }}|${{ job.container.id }}\"}]}")
			require.Equal(t, "succeeded", x.service.completed.Conclusion, x.service.jobLog())
			want := map[string]string{"no services": "||c", "numbers as ports": "8080|n|"}[name]
			require.Contains(t, x.service.stepLog("one"), "Run "+firstOf(want, "||"))
		})
	}
}

func TestContainers_AStepFailsWithTheHooksCode(t *testing.T) {
	x := hooked(t, prepared+`[ $command != run_script_step ] || exit 7`).job(inContainer)
	require.Equal(t, "failed", x.service.completed.Conclusion)
	require.Contains(t, x.service.stepLog("one"), "##[error]Process completed with exit code 7.\n")
	require.Contains(t, x.service.stepLog("one"), "##[error]"+wrapped)
	require.Contains(t, x.service.stepLog("one"), "running command 'RunScriptStep' did not execute successfully")
	require.Len(t, x.commands(), 4, "the step with always() runs too, and then the containers are stopped")
}

func TestContainers_CancelledWhileAHookRuns(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	require.NoError(t, syscall.Mkfifo(ready, 0o600))
	require.NoError(t, syscall.Mkfifo(ready+".child", 0o600))
	x := hooked(t, prepared+`
if [ $command = run_script_step ]; then
  (trap 'echo child got INT' INT; echo > `+ready+`.child; while :; do sleep 0.02; done) &
  read x < `+ready+`.child
  trap 'sleep 0.2; echo got INT; exit 0' INT
  echo $$ > `+ready+`
  while :; do sleep 0.02; done
fi`)
	x.service.queue("  a: {runs-on: x, container: 'debian:12', steps: [{name: one, run: 'true'}, {name: two, run: 'true'}]}")
	x.start()
	awaitReady(t, ready)
	x.service.cancel("00:05:00")
	require.NoError(t, x.wait())
	require.Equal(t, "canceled", x.service.completed.Conclusion)
	log := x.service.stepLog("one")
	require.Contains(t, log, "Z got INT\n")
	require.NotContains(t, log, "child got INT", "the hook alone is signaled")
	require.Contains(t, log, "##[error]"+wrapped, "GitHub's worker wraps the cancellation as well")
	require.Equal(t, "skipped", x.service.conclusions()["two"])
	require.Equal(t, []string{"prepare_job", "run_script_step", "cleanup_job"}, x.commands())
}

// SIGINT is followed by SIGTERM after 7.5 s, and 2.5 s later all that the hook started is killed.
func TestContainers_ADeafHookIsKilledWithItsChildren(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	require.NoError(t, syscall.Mkfifo(ready, 0o600))
	x := hooked(t, prepared+`
if [ $command = run_script_step ]; then
  trap '' INT TERM
  while :; do sleep 0.02; done &
  echo $$ > `+ready+`
  while :; do sleep 0.02; done
fi`)
	x.clock = newClock()
	x.opts.Now, x.opts.After = x.clock.Now, x.clock.After
	x.service.queue("  a: {runs-on: x, container: 'debian:12', steps: [{name: one, run: 'true'}]}")
	x.start()
	group := awaitReady(t, ready)
	x.service.cancel("00:05:00")
	require.Equal(t, 7500*time.Millisecond, x.clock.fire(t, 7*time.Second, 8*time.Second))
	require.Equal(t, 2500*time.Millisecond, x.clock.fire(t, 2*time.Second, 3*time.Second))
	require.NoError(t, x.wait())
	requireGroupGone(t, group)
	require.Equal(t, []string{"prepare_job", "run_script_step", "cleanup_job"}, x.commands())
}

func TestContainers_AJobWithoutAHookFailsInTheRealRunnersWords(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // where no docker is
	for _, jobs := range []string{inContainer, "  a: {runs-on: x, services: {db: postgres}, steps: [{name: one, run: 'true'}]}"} {
		x := newTrial(t, false).job(jobs)
		require.Equal(t, "failed", x.service.completed.Conclusion)
		require.Contains(t, x.service.stepLog("Set up job"), "##[error]docker: command not found\n")
		require.Contains(t, x.service.stepLog("Set up job"), "Containers of a job need docker or a container hook (ACTIONS_RUNNER_CONTAINER_HOOKS) on the runner.")
		require.Equal(t, "skipped", x.service.conclusions()["one"])
		require.NotContains(t, x.service.conclusions(), "Initialize containers")
		require.NotContains(t, x.service.conclusions(), "Stop containers")
	}
	x := newTrial(t, false).job("  a: {runs-on: x, steps: [{name: one, uses: 'docker://alpine'}]}")
	require.Contains(t, x.service.stepLog("one"), "##[error]docker: command not found\n")
}

func TestContainers_ARunnerMayRequireAJobContainer(t *testing.T) {
	x := newTrial(t, false)
	x.opts.Environ = append(x.opts.Environ, envRequireContainer+"=true")
	x.job("  a: {runs-on: x, steps: [{name: one, run: 'true'}]}")
	require.Equal(t, "failed", x.service.completed.Conclusion)
	require.Contains(t, x.service.stepLog("Set up job"), "##[error]Jobs without a job container are forbidden on this runner, please add a 'container:' to your job or contact your self-hosted runner administrator.")
	require.Equal(t, "succeeded", hooked(t, prepared, envRequireContainer+"=true").job(inContainer).service.completed.Conclusion)
}

func TestContainers_AHookThatCannotBeRun(t *testing.T) {
	dir := t.TempDir()
	for file, message := range map[string]string{
		"none.sh": "File not found at '" + dir + "/none.sh'. Set ACTIONS_RUNNER_CONTAINER_HOOKS to the path of an existing file.",
		"a.py":    "Invalid file extension at '" + dir + "/a.py'. ACTIONS_RUNNER_CONTAINER_HOOKS must be a path to a file with one of the following extensions: .js, .sh, .ps1",
		"a.js":    "the development runner runs hooks with the extension .sh only",
	} {
		if file != "none.sh" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
		}
		x := newTrial(t, false)
		x.opts.Environ = append(x.opts.Environ, envContainerHooks+"="+filepath.Join(dir, file))
		x.job(inContainer)
		require.Contains(t, x.service.stepLog("Initialize containers"), "##[error]"+wrapped)
		require.Contains(t, x.service.stepLog("Initialize containers"), message)
	}
}

// A hook learns the names of the services from the log of GitHub's worker.
func TestContainers_TheJobMessageIsInTheWorkersLogWithoutSecrets(t *testing.T) {
	x := hooked(t, prepared).job(`  a: {runs-on: x, services: {web: nginx, "db": {image: postgres, env: {P: "hunter22 \" x"}}}, steps: [{run: "true"}]}`)
	files, err := filepath.Glob(filepath.Join(x.opts.WorkDir, "_diag", "Worker_*-utc.log"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Regexp(t, `/Worker_\d{8}-\d{6}-utc\.log$`, files[0])
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	for _, secret := range []string{"hunter22", "ghs_token", "job-token"} {
		require.NotContains(t, string(text), secret)
	}
	_, message, ok := strings.Cut(string(text), " INFO Worker] Job message:\n ")
	require.True(t, ok)
	var read struct {
		JobServiceContainers struct {
			Map []struct{ Key string }
		}
	}
	require.NoError(t, json.NewDecoder(strings.NewReader(message)).Decode(&read))
	require.Equal(t, []struct{ Key string }{{"web"}, {"db"}}, read.JobServiceContainers.Map)

	x = run(t, "  a: {runs-on: x, steps: [{run: 'true'}]}")
	require.NoDirExists(t, filepath.Join(x.opts.WorkDir, "_diag"), "without a hook it has no reader")
}

// GitHub's worker has no docker where a hook is set, and uses it where the service does not allow the hook.
func TestContainers_AServiceThatDoesNotAllowTheHook(t *testing.T) {
	x := hooked(t, prepared)
	x.service.queue(inContainer)
	delete(x.service.job.Variables, workflow.VarContainerHooks)
	x.start()
	require.NoError(t, x.wait())
	require.Contains(t, x.service.stepLog("Initialize containers"), "##[error]Object reference not set to an instance of an object.\n")
	require.Contains(t, x.service.stepLog("two"), "##[error]Value cannot be null. (Parameter 'ContainerId')\n")
	require.Equal(t, "failed", x.service.completed.Conclusion)
	require.Empty(t, x.calls())
}
