package jobcontainers

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// ports are `ports:` of a service.
func ports(list ...string) object { return object{"portMappings": list} }

func options(text string) object { return object{"createOptions": text} }

// "service by name": from the job and from the runner. The worker's log has the name; another service has that of its image.
func TestServices_AreReachedByName(t *testing.T) {
	j := startJob(t, debian(), server("acme.example/db/postgres:17", "5432"), server("redis:8", "6379"))
	j.pod.WriteRunner(t, "_diag/Worker_20261126-200000-utc.log", workerLog(`"jobServiceContainers": {"type": 2, "map": [
		{"Key": "database", "Value": {"type": 2, "map": [{"Key": "image", "Value": "acme.example/db/postgres:17"}]}}, {"Key": "cache", "Value": "redis:8"}]}`))
	j.prepared(jobContainer("debian:12", nil), container("acme.example/db/postgres:17", nil), container("redis:8", nil))
	require.Contains(t, j.program("dial", "database:5432"), "serve 5432")
	require.Contains(t, j.program("dial", "cache:6379"), "serve 6379")
	output, _ := j.pod.Runner(t, Program, "dial", "database:5432")
	require.Contains(t, output, "serve 5432")
	require.Contains(t, j.cleanup(), "Print service container logs: database")
}

// workerLog is what GitHub's worker has in its log before the job starts (Worker.cs).
func workerLog(message string) string {
	return "[2026-11-26 20:00:00Z INFO Worker] Version: 2.336.0\n[2026-11-26 20:00:01Z INFO Worker] Job message:\n {\n  \"mask\": [],\n  \"jobId\": \"x\",\n  " +
		message + "\n}\n[2026-11-26 20:00:01Z INFO Worker] Job started.\n"
}

// A kubelet writes the hosts file again whenever a container starts: the next step has the names nevertheless, and so has a container action.
func TestServices_KeepTheirNamesWhenContainersStart(t *testing.T) {
	j := startJob(t, debian(), server("postgres:17", "5432"), Image{Name: "alpine:3.20"})
	j.prepared(jobContainer("debian:12", nil), container("postgres:17", nil))
	step := j.call("run_container_step", container("alpine:3.20", object{"entryPoint": Program, "entryPointArgs": []string{"dial", "postgres:5432"}, "workingDirectory": "/github/workspace"}))
	answer := j.run(step)
	require.Zero(t, answer.Code, answer.Log)
	require.Contains(t, answer.Log, "serve 5432")
	j.ended("step-2-0")
	require.Contains(t, j.program("dial", "postgres:5432"), "serve 5432")
}

func TestServices_CannotBeNamedWithoutRoot(t *testing.T) {
	job, db := debian(), server("postgres:17", "5432")
	job.NonRoot, db.NonRoot = true, true
	job.Config.User, db.Config.User = "1001", "1001"
	j := startJob(t, job, db)
	answer := j.prepared(jobContainer("debian:12", nil), container("postgres:17", nil))
	require.Contains(t, answer.Log, "::warning::Service names can't be resolved in this job, because no container of it runs as root; use localhost.")
	require.Contains(t, j.program("dial", "localhost:5432"), "serve 5432")
}

// "port 15432:5432" and "port 5432".
func TestServices_PortsAreForwarded(t *testing.T) {
	j := startJob(t, server("postgres:17", "5432"), server("redis:8", "6379"))
	answer := j.prepared(nil, container("postgres:17", ports("15432:5432")), container("redis:8", ports("6379")))
	require.Contains(t, answer.Response, `"ports":{"5432":"15432"}`)
	require.Contains(t, answer.Response, `"ports":{"6379":"6379"}`)
	for address, port := range map[string]string{"localhost:15432": "5432", "localhost:5432": "5432", "localhost:6379": "6379"} {
		output, code := j.pod.Runner(t, Program, "dial", address)
		require.Zero(t, code, output)
		require.Contains(t, output, "serve "+port)
	}
}

// Ports of the job container: a server that a step starts.
func TestServices_PortsOfTheJobAreForwarded(t *testing.T) {
	j := startJob(t, debian(), server("redis:8", "6379"))
	j.prepared(jobContainer("debian:12", ports("18080:8080")), container("redis:8", nil))
	answer := j.run(j.script(Program+" serve 8080 & until "+Program+" dial localhost:18080; do sleep 0.05; done; kill $!", nil))
	require.Zero(t, answer.Code, answer.Log)
	require.Contains(t, answer.Log, "serve 8080")
}

// "two services on one port", which only their logs show.
func TestServices_TwoOnOnePortAreExplained(t *testing.T) {
	second := Image{Name: "web:2", Config: jobcontainer.ImageConfig{Cmd: []string{"/bin/sh", "-c", "echo 'bind: Address already in use' >&2; exit 1"}}}
	j := startJob(t, server("web:1", "8080"), second)
	answer := j.prepare(nil, container("web:1", nil), container("web:2", options("--health-cmd true --health-interval 1h")))
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "::warning::The log of service 'web-2' shows a port that is in use. On this runner all containers of a job share one network address; give one of them another port.")
	j.cleanup()
}

// "host port taken": by a process of the runner.
func TestServices_APortIsTaken(t *testing.T) {
	j := startJob(t, server("postgres:17", "5432"))
	var taken net.Listener
	j.pod.Within(t, func() error {
		listener, err := net.Listen("tcp", ":15432")
		taken = listener
		return err
	})
	defer func() { require.NoError(t, taken.Close()) }()
	answer := j.prepare(nil, container("postgres:17", ports("15432:5432")))
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "::error::Port 15432 of service 'postgres' can't be opened: address already in use.")
	require.Empty(t, answer.Response, "a failed command has no response")
	j.cleanup()
}

// "two services on one port": nothing of them is started.
func TestServices_TwoOnOnePortAreRefused(t *testing.T) {
	j := startJob(t, server("postgres:17", "5432"), server("timescale:2", "5432"))
	answer := j.prepare(nil, container("postgres:17", nil), container("timescale:2", nil))
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "::error::Services 'postgres' and 'timescale' both listen on port 5432. "+
		"On this runner all containers of a job share one network address; give one of them another port.")
	j.ended("service-1-0")
	j.ended("service-1-1")
	j.cleanup()
}

// "health checks".
func TestServices_AreHealthyBeforeTheJobStarts(t *testing.T) {
	j := startJob(t, server("postgres:17", "5432"))
	answer := j.prepared(nil, container("postgres:17", options(`--health-cmd "`+Program+` dial localhost:5432" --health-interval 100ms`)))
	require.Contains(t, answer.Log, "postgres service is starting, waiting 2 seconds before checking again.")
	require.Contains(t, answer.Log, "postgres service is healthy.")
}

func TestServices_UnhealthyOnesFailTheJob(t *testing.T) {
	j := startJob(t, debian(), server("postgres:17", "5432"))
	answer := j.prepare(jobContainer("debian:12", nil), container("postgres:17", options("--health-cmd 'echo not yet; exit 1' --health-interval 50ms --health-retries 2")))
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "ready on 5432", "the log of the service")
	require.Contains(t, answer.Log, "not yet", "the output of the check")
	require.Contains(t, answer.Log, "::error::Failed to initialize container postgres:17")
	require.Contains(t, answer.Log, "::error::One or more containers failed to start.")
	require.Empty(t, answer.Response)
	j.cleanup() // with the state of no response
}

// The runner cancels a job whose service does not get healthy: SIGINT ends the hook at once, and cleanup_job ends the containers.
func TestServices_CancelledWhileTheyAreStarting(t *testing.T) {
	j := startJob(t, server("postgres:17", "5432"))
	hook := j.pod.StartHook(t, j.call("prepare_job", object{"container": nil, "services": []object{
		container("postgres:17", options("--health-cmd 'exit 1' --health-interval 1h")),
	}}))
	require.Eventually(t, func() bool { return strings.Contains(hook.Log(), "waiting 8 seconds") }, time.Minute, 5*time.Millisecond, hook.Log())
	cancelled := time.Now()
	hook.Signal(t, "SIGINT")
	answer := hook.Wait(t)
	require.Less(t, time.Since(cancelled), 6*time.Second, "not at the next look, after 8 s")
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "::error::The job was cancelled.")
	j.cleanup()
}

// "entrypoint: service": the image's, and what the workflow says instead.
func TestServices_RunTheirEntrypoint(t *testing.T) {
	image := server("postgres:17", "5432")
	image.Config.User, image.Config.WorkingDir, image.Config.Env = "worker", "/srv/data", []string{"FROM_IMAGE=1", "PATH=/usr/bin:/bin"}
	j := startJob(t, image)
	j.prepared(nil, container("postgres:17", object{"entryPoint": "/bin/sh", "entryPointArgs": []string{"-c", `"echo`, `who $(id -un) in $PWD has $FROM_IMAGE $FROM_JOB;`, "exec", Program, `serve`, `7000"`},
		"environmentVariables": object{"FROM_JOB": "2"}}))
	output, code := j.pod.Runner(t, Program, "dial", "localhost:7000")
	require.Zero(t, code, output)
	require.Contains(t, j.cleanup(), "who worker in /srv/data has 1 2")
}

func TestServices_ThatCannotStartFailTheJob(t *testing.T) {
	j := startJob(t, server("postgres:17", "5432"))
	answer := j.prepare(nil, container("postgres:17", object{"entryPoint": "/nope"}))
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "::error::Service 'postgres' could not be started: ")
	require.Contains(t, answer.Log, "/nope")
	j.cleanup()
}

// "service dies in mid-job": said once, in the next step's log.
func TestServices_ThatDieAreNamedOnce(t *testing.T) {
	image := Image{Name: "flaky:1", Config: jobcontainer.ImageConfig{Cmd: []string{"/bin/sh", "-c", "while [ ! -e /__w/_temp/die ]; do sleep 0.05; done; exit 3"}}}
	j := startJob(t, debian(), image)
	j.prepared(jobContainer("debian:12", nil), container("flaky:1", nil))
	require.NotContains(t, j.program("id"), "Service")
	j.pod.WriteWork(t, "_temp/die", "", 0o644)
	const text = "::warning::Service 'flaky' exited with code 3. It is not started again."
	require.Eventually(t, func() bool { return strings.Contains(j.program("id"), text) }, time.Minute, time.Millisecond)
	require.NotContains(t, j.program("id"), "Service")
	j.cleanup()
}

// SIGTERM, or the workflow's signal; then the end of everything.
func TestServices_AreStoppedWithTheirSignal(t *testing.T) {
	j := startJob(t, server("postgres:17", "5432"), server("redis:8", "6379"), Image{Name: "deaf:1", Config: jobcontainer.ImageConfig{Cmd: []string{Program, "deaf"}}})
	j.prepared(nil, container("postgres:17", options("--stop-signal SIGINT")), container("redis:8", nil), container("deaf:1", options("--stop-timeout 1")))
	for _, address := range []string{"localhost:5432", "localhost:6379"} {
		output, code := j.pod.Runner(t, Program, "dial", address)
		require.Zero(t, code, output)
	}
	begun := time.Now()
	j.cleanup()
	require.Less(t, time.Since(begun), 10*time.Second, "of the deaf one: 1 s, not Docker's 10 s")
}

// The log of a service is text: the runner must take no command from it.
func TestServices_CannotCommandTheRunnerByTheirLogs(t *testing.T) {
	image := Image{Name: "forger:1", Config: jobcontainer.ImageConfig{Cmd: []string{"/bin/sh", "-c", "echo '::set-env name=A::b'; echo '##[endgroup]'; touch /tmp/written; exec sleep 600"}}}
	j := startJob(t, image)
	j.prepared(nil, container("forger:1", options("--health-cmd '[ -e /tmp/written ]' --health-interval 100ms")))
	log := j.cleanup()
	require.Contains(t, log, "set-env")
	require.NotContains(t, log, "\n::set-env")
	require.Equal(t, 1, strings.Count(log, "##[endgroup]"), log)
}
