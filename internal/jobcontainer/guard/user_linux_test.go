package guard_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// Where a namespace's policy refuses root, the guard is the image's user.
func TestGuard_WorksWithoutRootForItsOwnUser(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	require.NoError(t, volume.Want(p.dir, "job"))
	c := p.begin("job", asUser("1500:1600"))
	require.NoError(t, c.Wait(await.Context(t)), c.log)

	require.Equal(t, "1500 1600 /home/builder 0002\n", c.sh("echo $(id -u) $(id -g) $HOME $(umask)").stdout)
	own := shell("id -u")
	own.User = "builder"
	require.Equal(t, "1500\n", c.run(own).stdout)
	own.User = "root"
	got := c.run(own)
	require.Equal(t, 126, got.Code)
	require.Equal(t, `the container runs as user 1500 and cannot start a process as user "root": this pool permits no other user`, got.Text)

	require.NoError(t, os.WriteFile(c.at("etc/passwd"), nil, 0o644)) // as in most images: the pod's user is not in there, or has another group
	for _, user := range []string{"", "1500", "1500:1600"} {
		own.User = user
		require.Equal(t, "1500\n", c.run(own).stdout, user)
	}
	own.User = "1500:0"
	require.Equal(t, 126, c.run(own).Code, "another group than that of the pod")

	for user, want := range map[string]*wire.Denied{"": nil, "1500": nil, "nobody-here": nil, "0": {Own: 1500}, "7": {UID: 7, Own: 1500}} {
		release, err := c.Release(t.Context(), user)
		require.NoError(t, err)
		require.False(t, release.Root)
		require.Equal(t, want, release.Denied, user)
	}
	err := c.Hosts(t.Context(), []client.HostEntry{{Address: "127.0.0.1", Name: "db"}})
	require.Equal(t, wire.FailNotPermitted, failure(t, err).Code)
	err = c.Links(t.Context(), []client.Link{{Volume: "a:/b", Source: "/vol/a", Target: "/b"}})
	require.Equal(t, "Volume 'a:/b' can't be mounted: the container does not run as root.", failure(t, err).Text)
	p.hold.Release()
	c.requireGone("it ends with its runner")
}

// A guard of another user is killed by no process of the job, and its socket serves both users.
func TestGuard_ServesTheRunnersUser(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	c := p.add("job")
	require.Equal(t, "on\n", c.sh("echo on").stdout)
	cmd := startClientAs(t, 1001, p.socket("job"), "sh", "-c", "echo up > /tmp/up; exit 7")
	require.Equal(t, "up", c.await("tmp/up"))
	_ = await.Call(t, cmd.Wait, "the client exits")
	require.Equal(t, 7, cmd.ProcessState.ExitCode())
}
