package guard_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// logs are what is kept of the main process's output.
func (c *container) logs() (stdout, stderr string) {
	c.p.Helper()
	var out, err bytes.Buffer
	require.NoError(c.p, c.Logs(await.Context(c.p), &out, &err))
	return out.String(), err.String()
}

// awaitState waits until the main process is in a state.
func (c *container) awaitState(state wire.State) client.Status {
	c.p.Helper()
	var status client.Status
	require.Eventually(c.p, func() bool {
		var err error
		status, err = c.Status(await.Context(c.p))
		require.NoError(c.p, err)
		return status.State == state
	}, await.Limit, 5*time.Millisecond, "the process is %s", state)
	return status
}

func failure(t *testing.T, err error) *client.Failure {
	t.Helper()
	f := new(client.Failure)
	require.ErrorAs(t, err, &f)
	return f
}

func TestService_RunsUntilItIsStopped(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	require.Equal(t, wire.StateNone, c.awaitState(wire.StateNone).State)
	status, err := c.Start(t.Context(), client.Process{
		Argv: []string{"sh", "-c", `trap 'echo stopping; exit 5' USR1; echo "in $PWD as $(id -un)"; echo warning >&2; echo up > /tmp/up; while :; do sleep 0.05; done`},
		User: "builder", Dir: "/srv/data", MakeDir: true,
	}, "SIGUSR1")
	require.NoError(t, err)
	require.Equal(t, client.Status{State: wire.StateRunning}, status)
	c.await("tmp/up")
	_, err = c.Start(t.Context(), shell("true"), "")
	require.Equal(t, wire.FailStarted, failure(t, err).Code)
	require.Equal(t, "beside it\n", c.sh("echo beside it").stdout)

	status, err = c.Stop(t.Context(), 10*time.Second)
	require.NoError(t, err)
	require.Equal(t, client.Status{State: wire.StateExited, Exit: &client.Exit{Code: 5}}, status)
	stdout, stderr := c.logs()
	require.Equal(t, "in /srv/data as builder\nstopping\n", stdout)
	require.Equal(t, "warning\n", stderr)
	_, err = c.Exec(t.Context(), shell("true"), client.Streams{})
	require.Equal(t, wire.FailNotRunning, failure(t, err).Code)
	require.Contains(t, err.Error(), "the container is not running: its process ended with exit code 5")
	_, err = c.Health(t.Context(), shell("true"), time.Second)
	require.Equal(t, wire.FailNotRunning, failure(t, err).Code)
}

func TestService_IsKilledIfItDoesNotStop(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	_, err := c.Start(t.Context(), shell(ignoring), "")
	require.NoError(t, err)
	c.await("tmp/up")
	status, err := c.Stop(t.Context(), 300*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, client.Exit{Code: 137, Signal: 9}, *status.Exit)
	c.requireEmpty()
}

func TestService_NothingOfAContainerSurvivesIt(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	_, err := c.Start(t.Context(), shell("setsid sleep 600 & sleep 0.2; echo bye; exit 1"), "")
	require.NoError(t, err)
	require.Equal(t, 1, c.awaitState(wire.StateExited).Exit.Code)
	c.requireEmpty()
	stdout, _ := c.logs()
	require.Equal(t, "bye\n", stdout)
}

func TestService_SaysWhyItDidNotStart(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	status, err := c.Start(t.Context(), client.Process{Argv: []string{"nope"}}, "")
	require.NoError(t, err)
	require.Equal(t, 127, status.Exit.Code)
	require.Contains(t, status.Exit.Text, "nope: command not found")
	_, err = c.Start(t.Context(), shell("true"), "SIGNOPE")
	require.Equal(t, wire.FailInvalid, failure(t, err).Code)
}

func TestService_KeepsTheEndOfItsLog(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	_, err := c.Start(t.Context(), shell("seq 2000000; echo last line"), "")
	require.NoError(t, err)
	c.awaitState(wire.StateExited)
	stdout, stderr := c.logs()
	require.True(t, strings.HasSuffix(stdout, "\n2000000\nlast line\n"))
	require.LessOrEqual(t, len(stdout), 1<<20)
	require.Greater(t, len(stdout), 1<<19)
	require.Contains(t, stderr, "bytes of this log were not kept)")
	require.Less(t, c.peak(), guardMemory)
}

func TestService_HasTheLimitsOfItsOptions(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	process := shell(`echo "$0 $(ulimit -Sn) $(ulimit -Hn) $(id -u)"`)
	process.Nofile, process.User = &client.Limits{Soft: 512, Hard: 700}, "builder"
	require.Equal(t, "sh 512 700 1500\n", c.run(process).stdout)
	_, err := c.Start(t.Context(), process, "")
	require.NoError(t, err)
	c.awaitState(wire.StateExited)
	stdout, _ := c.logs()
	require.Equal(t, "sh 512 700 1500\n", stdout)

	process.Nofile = &client.Limits{Soft: 1 << 40, Hard: 1 << 40}
	got := newPod(t).add("job").run(process)
	var most unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &most))
	require.Equal(t, fmt.Sprintf("sh %d %[1]d 1500\n", most.Max), got.stdout)
	require.Equal(t, fmt.Sprintf("Option '--ulimit nofile=1099511627776:1099511627776' is above the hard limit of this runner: the limits are %d:%[1]d.\n", most.Max), got.stderr)
}

func TestHealth_RunsACommand(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	_, err := c.Start(t.Context(), shell("setsid sh -c 'while :; do sleep 1; done' & while :; do sleep 1; done"), "")
	require.NoError(t, err)
	got, err := c.Health(t.Context(), shell("echo fine; echo more >&2; exit 0"), 10*time.Second)
	require.NoError(t, err)
	require.Equal(t, client.Exit{}, got.Exit)
	require.ElementsMatch(t, []string{"fine", "more"}, strings.Fields(got.Output))

	got, err = c.Health(t.Context(), shell("seq 100000; exit 1"), 10*time.Second)
	require.NoError(t, err)
	require.Equal(t, 1, got.Exit.Code)
	require.Len(t, got.Output, wire.MaxHealthOutput)
	require.True(t, strings.HasSuffix(got.Output, "\n100000\n"))

	before := c.processes()
	start := time.Now()
	got, err = c.Health(t.Context(), shell("echo waiting; trap '' TERM; sh -c 'sleep 600' & sleep 600"), 200*time.Millisecond)
	require.NoError(t, err)
	require.Less(t, time.Since(start), 20*time.Second)
	require.True(t, got.TimedOut)
	require.Equal(t, "waiting\n", got.Output)
	require.Eventually(t, func() bool { return c.processes() == before }, await.Limit, 5*time.Millisecond, "the command's processes are gone")
	require.Equal(t, wire.StateRunning, c.awaitState(wire.StateRunning).State)

	got, err = c.Health(t.Context(), client.Process{Argv: []string{"pg_isready_not"}}, time.Second)
	require.NoError(t, err)
	require.Equal(t, 127, got.Exit.Code)
}

func TestLinks_MakeVolumesAppear(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	require.NoError(t, os.MkdirAll(c.at("var/lib"), 0o755))
	require.NoError(t, os.Mkdir(c.at("var/lib/data"), 0o700))
	require.NoError(t, os.Chown(c.at("var/lib/data"), 1500, 1600))
	require.NoError(t, os.MkdirAll(c.at("full/inside"), 0o755))
	links := []client.Link{
		{Volume: "data:/var/lib/data", Source: "/vol/data", Target: "/var/lib/data"},
		{Volume: "cache:/opt/new/cache", Source: "/vol/cache", Target: "/opt/new/cache"},
	}
	require.NoError(t, c.Links(t.Context(), links))
	require.NoError(t, c.Links(t.Context(), links), "a second time changes nothing")
	got := c.run(client.Process{User: "builder", Argv: []string{"sh", "-c",
		"echo one > /var/lib/data/file && cat /vol/data/file && echo two > /opt/new/cache/file && cat /vol/cache/file && stat -Lc '%a %u:%g' /var/lib/data /opt/new/cache"}})
	require.Equal(t, "one\ntwo\n700 1500:1600\n777 0:0\n", got.stdout, got.stderr)

	err := c.Links(t.Context(), []client.Link{{Volume: "data:/full", Source: "/vol/data", Target: "/full"}})
	require.Equal(t, &client.Failure{Code: wire.FailNotEmpty, Text: "Volume 'data:/full' can't be mounted: the target is not empty."}, failure(t, err))
	err = c.Links(t.Context(), []client.Link{{Volume: "data:/etc/passwd", Source: "/vol/data", Target: "/etc/passwd"}})
	require.Equal(t, "Volume 'data:/etc/passwd' can't be mounted: the target is not a directory.", failure(t, err).Text)
	err = c.Links(t.Context(), []client.Link{{Volume: "x:/", Source: "/vol/data", Target: "/"}})
	require.Equal(t, wire.FailInvalid, failure(t, err).Code)
}

// A runtime mounts a directory at each VOLUME of an image, which cannot be removed.
func TestLinks_KeepWhatIsMounted(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	require.NoError(t, os.MkdirAll(c.at("var/lib/data"), 0o755))
	require.Zero(t, c.sh("mount -t tmpfs tmpfs /var/lib/data && touch /var/lib/data/of-the-image && mkdir /var/lib/empty && mount -t tmpfs tmpfs /var/lib/empty").Code)
	link := client.Link{Volume: "data:/var/lib/data", Source: "/vol/data", Target: "/var/lib/data", Keep: true}
	require.NoError(t, c.Links(t.Context(), []client.Link{link}))
	require.Equal(t, "of-the-image\n", c.sh("ls /var/lib/data").stdout)

	link.Keep = false
	err := c.Links(t.Context(), []client.Link{link})
	require.Equal(t, wire.FailNotEmpty, failure(t, err).Code)
	link.Target = "/var/lib/empty"
	err = c.Links(t.Context(), []client.Link{link})
	require.Equal(t, "Volume 'data:/var/lib/data' can't be mounted: a directory is mounted there already, as at each VOLUME of an image.", failure(t, err).Text)

	link = client.Link{Volume: "new:/srv/new", Source: "/vol/new", Target: "/srv/new", Keep: true}
	require.NoError(t, c.Links(t.Context(), []client.Link{link}))
	require.Equal(t, "/vol/new\n", c.sh("readlink /srv/new").stdout, "a directory that is missing becomes a link")
}

func TestLinks_FollowLinksOfTheImage(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	require.Zero(t, c.sh("mkdir -p /run/cache /run/full/inside && ln -s /run/cache /cache && ln -s full /run/alias && ln -s /nowhere /broken").Code)
	require.NoError(t, c.Links(t.Context(), []client.Link{{Volume: "data:/cache", Source: "/vol/data", Target: "/cache"}}))
	require.Equal(t, "/vol/data\n", c.sh("readlink /run/cache").stdout)
	require.NoError(t, c.Links(t.Context(), []client.Link{{Volume: "data:/run/cache", Source: "/vol/data", Target: "/run/cache"}}), "one volume, at two paths that are one")
	require.NoError(t, c.Links(t.Context(), []client.Link{{Volume: "/run/alias", Source: "/vol/other", Target: "/run/alias", Keep: true}}))
	require.Zero(t, c.sh("ln -s /__w/_volumes/a /other && mkdir -p /__w/_volumes/a").Code)
	err := c.Links(t.Context(), []client.Link{{Volume: "b:/other", Source: "/__w/_volumes/b", Target: "/other"}})
	require.Equal(t, "Volume 'b:/other' can't be mounted: the target is a symbolic link to another volume or to a directory of the runner.", failure(t, err).Text)
	require.Zero(t, c.sh("test -d /__w/_volumes/a -a ! -L /__w/_volumes/a").Code)
	for target, text := range map[string]string{
		"/run/alias": "Volume 'x' can't be mounted: the target is not empty.", "/broken": "Volume 'x' can't be mounted: the target is a symbolic link that leads nowhere.",
	} {
		err = c.Links(t.Context(), []client.Link{{Volume: "x", Source: "/vol/x", Target: target}})
		require.Equal(t, text, failure(t, err).Text)
	}
}

// The kernel kills a process of the container, and not the guard: the container's status says nothing.
func TestExit_TellsOfMemory(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"sys/fs/cgroup/memory.events", "sys/fs/cgroup/memory/memory.oom_control"} {
		c := newPod(t).add("job")
		require.NoError(t, os.MkdirAll(filepath.Dir(c.at(file)), 0o755))
		require.NoError(t, os.WriteFile(c.at(file), []byte("oom 3\noom_kill 2\n"), 0o644))
		require.Equal(t, client.Exit{Code: 137, Signal: 9}, c.sh("kill -9 $$").Exit, "not killed for memory")
		require.True(t, c.sh("echo oom_kill 3 > /"+file+"; kill -9 $$").OutOfMemory)
		require.True(t, c.sh("echo oom_kill 4 > /"+file+"; exit 137").OutOfMemory, "a shell whose command was killed")
		require.False(t, c.sh("echo oom_kill 5 > /"+file+"; exit 1").OutOfMemory, "a command that could do without")
		_, err := c.Start(t.Context(), shell("echo oom_kill 6 > /"+file+"; kill -9 $$"), "")
		require.NoError(t, err)
		require.True(t, c.awaitState(wire.StateExited).Exit.OutOfMemory)
	}
}

func TestHosts_AddsNamesOnce(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	entries := []client.HostEntry{{Address: "127.0.0.1", Name: "postgres"}, {Address: "127.0.0.1", Name: "redis"}, {Address: "127.0.0.1", Name: "localhost"}}
	for range 2 {
		require.NoError(t, c.Hosts(t.Context(), entries))
	}
	content, err := os.ReadFile(c.at("etc/hosts"))
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1\tlocalhost\n127.0.0.1\tpostgres\n127.0.0.1\tredis\n", string(content))
	for _, bad := range []client.HostEntry{{Address: "127.0.0.1", Name: "a b"}, {Address: "x", Name: "a"}, {Address: "127.0.0.1", Name: "a\n10.0.0.1 b"}} {
		require.Equal(t, wire.FailInvalid, failure(t, c.Hosts(t.Context(), []client.HostEntry{bad})).Code)
	}
}

func TestRelease_DescribesTheImage(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	got, err := c.Release(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, client.Release{ID: "test", IDLike: []string{"debian", "ubuntu"}, Root: true, Users: []string{"root", "builder"}}, got)
	require.NoError(t, os.WriteFile(c.at("etc/os-release"), []byte("NAME=\"Alpine Linux\"\nID=alpine\n"), 0o600))
	got, err = c.Release(t.Context(), "")
	require.NoError(t, err)
	require.True(t, got.Alpine)
	// An image may make these files anything.
	require.NoError(t, os.Remove(c.at("etc/passwd")))
	require.Equal(t, 0, c.sh("mkfifo /etc/passwd").Code)
	got, err = c.Release(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, got.Users)
	require.Contains(t, c.run(client.Process{Argv: []string{"true"}, User: "builder"}).Text, "reading /etc/passwd of the image: it is not a regular file")
}

func TestRelay_ForwardsPorts(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	tcp, udp := tcpEcho(t), udpEcho(t)
	for _, r := range []client.Relay{{Protocol: "tcp", Listen: freePort(t), Target: tcp}, {Protocol: "udp", Listen: freePort(t), Target: udp}} {
		require.NoError(t, c.Relay(t.Context(), r))
		require.NoError(t, c.Relay(t.Context(), r), "a second time changes nothing")
		require.Equal(t, "hello over "+r.Protocol, echoed(t, r.Protocol, r.Listen, "hello over "+r.Protocol))
	}
	err := c.Relay(t.Context(), client.Relay{Protocol: "tcp", Listen: tcp, Target: udp})
	require.Equal(t, &client.Failure{Code: wire.FailInUse, Text: fmt.Sprintf("port %d/tcp: address already in use", tcp)}, failure(t, err))
	err = c.Relay(t.Context(), client.Relay{Protocol: "sctp", Listen: 1, Target: 2})
	require.Equal(t, wire.FailInvalid, failure(t, err).Code)
}
