package jobcontainers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// What can't be done is refused with its text, before anything is asked for.
func TestRefusals_BeforeARequest(t *testing.T) {
	for name, row := range map[string]struct {
		more object
		text string
	}{
		"privileged": {options("--privileged"), "Option '--privileged' of container 'job' is not available on this runner. Remove it, or use a pool that permits docker."},
		"unknown":    {options("--foo"), "Option '--foo' is not known to this runner."},
		"host path": {object{"userMountVolumes": []object{{"userProvidedValue": "/etc/data:/data", "sourceVolumePath": "/etc/data", "targetVolumePath": "/data", "readOnly": false}}},
			"Host path '/etc/data' of volume '/etc/data:/data' is not available to job containers on this runner. Use a path below the workspace."},
		"docker's socket": {object{"userMountVolumes": []object{{"userProvidedValue": "/var/run/docker.sock:/var/run/docker.sock", "sourceVolumePath": "/var/run/docker.sock", "targetVolumePath": "/var/run/docker.sock", "readOnly": false}}},
			"The docker socket is not available to job containers on this runner."},
	} {
		t.Run(name, func(t *testing.T) {
			j := startJob(t, debian())
			answer := j.prepare(jobContainer("debian:12", row.more))
			require.Equal(t, 1, answer.Code)
			require.Contains(t, answer.Log, "::error::"+row.text)
			require.Empty(t, answer.Response)
			require.Empty(t, j.pod.Requests())
			j.cleanup()
		})
	}
}

// Two problems are two errors.
func TestRefusals_NameAllProblems(t *testing.T) {
	j := startJob(t, debian(), server("postgres:17", "5432"))
	answer := j.prepare(jobContainer("debian:12", options("--privileged --foo")), container("postgres:17", options("--cap-add NET_ADMIN")))
	for _, text := range []string{"::error::Option '--privileged' of container 'job'", "::error::Option '--foo'", "::error::Option '--cap-add NET_ADMIN' of container 'postgres'"} {
		require.Contains(t, answer.Log, text)
	}
}

// What only the image or the controller shows.
func TestRefusals_OfImages(t *testing.T) {
	foreign := debian()
	foreign.Config = jobcontainer.ImageConfig{OS: "linux", Architecture: "s390x"}
	refused, unpullable := debian(), debian()
	refused.Refusal = "Image 'debian:12' could not be pulled: no credentials were given for registry 'docker.io'."
	unpullable.Pull = "Image 'debian:12' could not be pulled: manifest unknown."
	for name, row := range map[string]struct {
		image Image
		text  string
	}{
		"platform": {foreign, "Image 'debian:12' has no linux/" + architecture + " variant (found: linux/s390x)."},
		"refused":  {refused, refused.Refusal},
		"pull":     {unpullable, unpullable.Pull},
	} {
		t.Run(name, func(t *testing.T) {
			j := startJob(t, row.image)
			answer := j.prepare(jobContainer("debian:12", nil))
			require.Equal(t, 1, answer.Code)
			require.Contains(t, answer.Log, "::error::"+row.text)
			require.Empty(t, answer.Response)
			j.cleanup()
		})
	}
}

// Options that have no effect are warnings.
func TestRefusals_WarningsOfResources(t *testing.T) {
	j := startJob(t, debian())
	answer := j.prepared(jobContainer("debian:12", options("--memory 4g --cpus 2 --name x --rm")))
	require.Contains(t, answer.Log, "::warning::Option '--memory 4g' has no effect: the containers of a job share the resources of its pod (at least 8 CPU, 16Gi).")
	require.Contains(t, answer.Log, "::warning::Option '--cpus 2' has no effect")
	require.Equal(t, 2, strings.Count(answer.Log, "::warning::"), answer.Log)
}

// "volumes: named": one directory for all containers of the job. A target with content is refused.
func TestVolumes(t *testing.T) {
	named := func(target string) object {
		return object{"userMountVolumes": []object{{"userProvidedValue": "data:" + target, "sourceVolumePath": "data", "targetVolumePath": target, "readOnly": false}}}
	}
	t.Run("shared", func(t *testing.T) {
		writer := Image{Name: "writer:1", Config: jobcontainer.ImageConfig{Cmd: []string{"/bin/sh", "-c", "echo written > /srv/data/file; exec sleep 600"}}}
		j := startJob(t, debian(), writer)
		j.prepared(jobContainer("debian:12", named("/data")), container("writer:1", named("/srv/data")))
		answer := j.run(j.script("until [ -s /data/file ]; do sleep 0.02; done; cat /data/file", nil))
		require.Equal(t, "written\n", answer.Log)
	})
	t.Run("of an absent path of the host", func(t *testing.T) {
		shared := func(target string) object {
			return object{"userMountVolumes": []object{{"userProvidedValue": "/absent/data:" + target, "sourceVolumePath": "/absent/data", "targetVolumePath": target, "readOnly": false}}}
		}
		writer := Image{Name: "writer:1", Config: jobcontainer.ImageConfig{Cmd: []string{"/bin/sh", "-c", "echo written > /srv/data/file; exec sleep 600"}}}
		j := startJob(t, debian(), writer)
		answer := j.prepared(jobContainer("debian:12", shared("/data")), container("writer:1", shared("/srv/data")))
		require.Contains(t, answer.Log, "::warning::Host path '/absent/data' of volume '/absent/data:/data' does not exist on this runner")
		require.Equal(t, "written\n", j.run(j.script("until [ -s /data/file ]; do sleep 0.02; done; cat /data/file", nil)).Log)
	})
	t.Run("not empty", func(t *testing.T) {
		j := startJob(t, debian())
		answer := j.prepare(jobContainer("debian:12", named("/etc")))
		require.Equal(t, 1, answer.Code)
		require.Contains(t, answer.Log, "::error::Volume 'data:/etc' can't be mounted: the target is not empty.")
		j.cleanup()
	})
	// Databases declare the directory of their data, and the runtime mounts one there that nothing can replace.
	database := Image{Name: "postgres:17", Config: jobcontainer.ImageConfig{Volumes: slices.Sorted(maps.Keys(declaredVolumes)),
		Cmd: []string{"/bin/sh", "-c", "ls /var/lib/seeded; echo written > /var/lib/data/file; exec sleep 600"}}}
	t.Run("declared by the image", func(t *testing.T) {
		j := startJob(t, debian(), database)
		asked := named("/var/lib/data")
		asked["createOptions"] = "--tmpfs /var/lib/seeded --tmpfs /dev/shm --tmpfs /srv/new --health-cmd '[ -s /var/lib/data/file ]' --health-interval 100ms"
		j.prepared(jobContainer("debian:12", nil), container("postgres:17", asked))
		require.Contains(t, j.cleanup(), "of-the-image")
	})
	t.Run("declared by the image, and shared", func(t *testing.T) {
		j := startJob(t, debian(), database)
		answer := j.prepare(jobContainer("debian:12", named("/data")), container("postgres:17", named("/var/lib/data")))
		require.Equal(t, 1, answer.Code)
		require.Contains(t, answer.Log, "::error::Volume 'data:/var/lib/data' can't be mounted: a directory is mounted there already, as at each VOLUME of an image.")
		j.cleanup()
	})
}

// Secrets go to the guard alone: not into the response, the log, an argument, or a file that containers of the job can read.
func TestSecrets_JOB3_GoThroughTheSocketAlone(t *testing.T) {
	const password, token = "pa55word-of-the-database", "t0ken-of-the-registry"
	image := server("postgres:17", "5432")
	j := startJob(t, debian(), image)
	answer := j.prepared(jobContainer("debian:12", nil), container("postgres:17", object{
		"environmentVariables": object{"POSTGRES_PASSWORD": password}, "registry": object{"username": "acme", "password": token, "serverUrl": "ghcr.io"},
	}))
	requests := j.pod.Requests()
	require.Len(t, requests, 1)
	require.Equal(t, &jobcontainer.Credentials{Username: "acme", Password: token, Server: "ghcr.io"}, requests[0].Containers[1].Credentials)
	for _, secret := range []string{password, token} {
		require.NotContains(t, answer.Log+answer.Response, secret)
		found := j.run(j.script("grep -rlF "+secret[:8]+"'"+secret[8:]+"' /bullpen /__w /github --exclude='step-*.sh' --exclude=bullpen-agent", nil))
		require.Equal(t, 1, found.Code, "found in %s", found.Log)
	}
	require.NotContains(t, j.cleanup(), password)
	output, _ := j.pod.Runner(t, "/bin/sh", "-c", "grep -rlF "+password+" /bullpen _work")
	require.Empty(t, output, "nothing is left after the job")
}

// A session that another job has left is not this job's.
func TestJobs_OneAfterAnother(t *testing.T) {
	j := startJob(t, debian(), server("postgres:17", "5432"))
	for range 2 {
		j.prepared(jobContainer("debian:12", nil), container("postgres:17", nil))
		require.Contains(t, j.program("dial", "postgres:5432"), "serve 5432")
		j.cleanup()
	}
	answer := j.run(j.command(nil, Program, "id"))
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "::error::The step can't run: this job's container was not started.")
	require.Len(t, j.pod.Requests(), 2)
}

// Input that is not GitHub's.
func TestRefusals_OfInput(t *testing.T) {
	j := startJob(t)
	call := j.call("run_something", object{})
	answer := j.run(call)
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, `::error::reading the container hook's input: unknown command "run_something"`)
	require.Empty(t, answer.Response)
}

// "user of the image": root, where the namespace permits no root.
func TestRefusals_RootWhereItIsNotPermitted(t *testing.T) {
	image := debian()
	image.NonRoot = true
	j := startJob(t, image)
	answer := j.prepare(jobContainer("debian:12", nil))
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "::error::Image 'debian:12' runs as root, which this pool does not permit.")
	j.cleanup()
	step := j.call("run_container_step", container("debian:12", object{"entryPoint": Program, "entryPointArgs": []string{"id"}, "workingDirectory": "/"}))
	answer = j.run(step)
	require.Equal(t, 1, answer.Code)
	require.Contains(t, answer.Log, "::error::Image 'debian:12' runs as root, which this pool does not permit.", "also an action's")
}

// With securityProfile Restricted, the user of an image must be the runner's.
func TestRefusals_AUserThatIsNotTheRunners(t *testing.T) {
	for _, user := range []string{"1234", "worker"} { // the second is known when the image runs
		t.Run(user, func(t *testing.T) {
			image := debian()
			image.NonRoot, image.Config.User = true, user
			j := startJob(t, image)
			run := func(command string, arguments object) Answer {
				call := j.call(command, arguments)
				call.Environment = []string{"BULLPEN_JOB_PROFILE=Restricted"}
				return j.run(call)
			}
			refused := func(answer Answer, container string) {
				require.Equal(t, 1, answer.Code)
				require.Contains(t, answer.Log, fmt.Sprintf("::error::Container '%s' of image 'debian:12' runs as user 1234, and this pool permits only user %d. "+
					"If the image works as that user, add `options: --user %d`.", container, runnerUser, runnerUser))
			}
			refused(run("prepare_job", object{"container": jobContainer("debian:12", nil), "services": []object{}}), "job")
			j.cleanup()
			refused(run("run_container_step", container("debian:12", object{"entryPoint": Program, "entryPointArgs": []string{"id"}, "workingDirectory": "/"})), "step")
			answer := run("prepare_job", object{"container": jobContainer("debian:12", options(fmt.Sprintf("--user %d", runnerUser))), "services": []object{}})
			require.Zero(t, answer.Code, answer.Log)
			j.cleanup()
		})
	}
}

func TestRefusals_ACommandThatTheImageOfAnActionLacks(t *testing.T) {
	j := startJob(t, Image{Name: "alpine:3.20"})
	answer := j.run(j.call("run_container_step", container("alpine:3.20", object{"entryPoint": "mytool", "workingDirectory": "/"})))
	require.Equal(t, 127, answer.Code)
	require.Contains(t, answer.Log, "::error::Command 'mytool' is not in image 'alpine:3.20'.")
}
