package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

// requireNode skips the test for users who cannot run a node. Root can: what is missing is a failure.
func requireNode(t *testing.T) {
	t.Helper()
	if err := realnode.CheckMachine(); err != nil {
		if os.Getuid() == 0 {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// leavesNothing fails the test for what is left of a state directory's node on the machine.
func leavesNothing(t *testing.T, dir string) {
	t.Helper()
	left, err := realnode.Remains(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, processesOf(t, dir))
}

const containedJob = `
on: push
jobs:
  contained:
    runs-on: bullpen
    steps:
      - run: |
          test "$(id -u)" = 1001
          test ! -e /proc/1/root/etc/shadow
          test "$(cat /etc/passwd | wc -l)" = 2
          echo contained
`

const loadedJob = `
on: push
jobs:
  loaded:
    runs-on: bullpen
    container: registry.test/own:1
    steps:
      - run: test "$(cat /x)" = x
        shell: sh
`

// One life of a state directory with containers: bad input, a job in a container, images from a file, kill -9, and down.
func TestUpContainers(t *testing.T) {
	requireNode(t)
	dir := stateDir(t)
	refused(t, "stand-ins for Macs are processes", "up", "--containers", "--macos", "--state-dir", dir)
	refused(t, "is not running in "+dir, "images", "list", "--state-dir", dir)
	workflow := writeFile(t, "contained.yaml", containedJob)
	command := bullpen(t, "up", "--json", "--state-dir", dir, "--containers", "--drain", "--runners", "1", "--workflow", workflow)
	first := begin(t, command)
	t.Cleanup(func() { first.end(t) })
	// A node and its images are made after everything that other state directories have.
	first.awaitWithin(t, 2*patience, "ready", func(e event) bool { return e.Event == "ready" })
	first.awaitWithin(t, 2*patience, "the end of a job in a container", jobEnded("contained", "success"))

	t.Run("images are loaded from a file", func(t *testing.T) { loadImages(t, dir) })
	t.Run("jobs have services, and containers of images that were loaded", func(t *testing.T) {
		for _, file := range []string{"../../examples/services.yaml", writeFile(t, "loaded.yaml", loadedJob)} {
			_, stderr, code := run(t, "run", file, "--state-dir", dir)
			require.Zero(t, code, stderr)
		}
		for _, job := range []string{"database", "contained", "loaded"} {
			first.awaitWithin(t, 2*patience, "the end of the job "+job, jobEnded(job, "success"))
		}
	})
	t.Run("containerd and the node are started again", func(t *testing.T) {
		init := first.ready(t).NodeInit
		require.NoError(t, syscall.Kill(childOf(t, init, "/run/programs/containerd --config"), syscall.SIGKILL))
		first.startedAgain(t, "containerd")
		require.NoError(t, syscall.Kill(init, syscall.SIGKILL))
		first.startedAgain(t, "kubelet")
		_, stderr, code := run(t, "run", writeFile(t, "again.yaml", strings.ReplaceAll(loadedJob, "loaded:", "again:")), "--state-dir", dir)
		require.Zero(t, code, stderr)
		first.awaitWithin(t, 2*patience, "the end of a job on the new node", jobEnded("again", "success"))
	})
	t.Run("the other kind of runners is refused", func(t *testing.T) {
		require.NoError(t, first.command.Process.Kill())
		first.exited(t)
		refused(t, "was made with --containers", "up", "--state-dir", dir)
	})
	stdout, stderr, code := run(t, "down", "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	require.NotEmpty(t, stdout)
	leavesNothing(t, dir)
}

// startedAgain waits until a part has started twice.
func (r *running) startedAgain(t *testing.T, part string) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		starts := 0
		for _, e := range r.events {
			if e.Event == "started" && e.Part == part {
				starts++
			}
		}
		return starts > 1
	}, 2*patience, interval, "%s has not started again", part)
}

// childOf is the child of a process that runs a program.
func childOf(t *testing.T, parent int, program string) int {
	t.Helper()
	found, err := exec.CommandContext(await.Context(t), "pgrep", "--parent", strconv.Itoa(parent), "--full", "^"+program).Output()
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.Fields(string(found))[0])
	require.NoError(t, err)
	return pid
}

// loadImages loads an image of this machine's architecture, and is refused one of another.
func loadImages(t *testing.T, dir string) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	var content bytes.Buffer
	files, err := realnode.HostPrograms("sh", "cat")
	require.NoError(t, err)
	files = append(files, realnode.File{Path: "/x", Content: []byte("x")}, realnode.File{Path: "/tmp", Mode: 0o1777})
	require.NoError(t, realnode.Image{Ref: "registry.test/own:1", Files: files, Env: []string{"PATH=/usr/bin:/bin"}}.Write(&content))
	require.NoError(t, os.WriteFile(archive, content.Bytes(), 0o600))
	stdout, stderr, code := run(t, "images", "load", archive, "--state-dir", dir)
	require.Zero(t, code, stderr)
	require.Equal(t, "Loaded registry.test/own:1.\n", stdout)
	stdout, stderr, code = run(t, "images", "list", "--state-dir", dir)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "registry.test/own:1 ")
	require.Contains(t, stdout, "bullpen.local/runner:up ")
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("hello"), 0o600))
	refused(t, "not an archive of container images", "images", "load", text, "--state-dir", dir)
}

// The demonstration in containers, and what the machine is like afterwards.
func TestDemoContainers(t *testing.T) {
	deep.Only(t, "TestUpContainers")
	requireNode(t)
	dir := stateDir(t)
	links, cgroups := machineLinks(t), machineCgroups(t)
	command := bullpen(t, "demo", "--containers", "--state-dir", dir)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	require.NoError(t, command.Start())
	limit := time.AfterFunc(10*time.Minute, func() { _ = command.Process.Signal(syscall.SIGTERM) })
	defer limit.Stop()
	require.NoError(t, command.Wait(), out.String()) // bounded: limit ends it
	for _, line := range []string{
		"14, 14 as expected (12 success, 1 failure, 1 skipped)",
		"restarted       server      kill -9", "restarted       controller  SIGTERM", "restarted       kubelet     kill -9", "restarted       containerd  SIGTERM",
		"changed         cordoned the node and uncordoned it", "processes left  0", "of the node     0 mounts", "killed mid-job: 0", "PASSED: ",
	} {
		require.Contains(t, out.String(), line)
	}
	leavesNothing(t, dir)
	require.Equal(t, links, machineLinks(t))
	require.Equal(t, cgroups, machineCgroups(t))
}

// machineLinks are the network links of this machine's own network.
func machineLinks(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir("/sys/class/net")
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

// machineCgroups are the cgroups of state directories.
func machineCgroups(t *testing.T) string {
	t.Helper()
	output, err := exec.CommandContext(await.Context(t), "find", "/sys/fs/cgroup", "-maxdepth", "2", "-name", "bullpen-*").Output()
	require.NoError(t, err)
	return string(output)
}
