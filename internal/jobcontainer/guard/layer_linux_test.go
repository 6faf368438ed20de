package guard_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// fill leaves what a job can leave: large files, names without end, directories that deny themselves, files under two names, links to
// elsewhere, holes that are allocated, files of the image that have changed, and a process that goes on writing.
const fill = `
	mkdir -p /tmp/a/b/c /tmp/closed
	head -c 1M /dev/zero >/tmp/a/b/c/large
	ln /tmp/a/b/c/large /tmp/second-name
	ln -s /bullpen/job /tmp/volume
	ln -s /usr /tmp/a/usr
	mkfifo /tmp/fifo
	fallocate -n -l 1M /tmp/allocated
	for i in $(seq 300); do : >/tmp/a/$i; done
	head -c 1M /dev/zero >/tmp/closed/file
	chmod 000 /tmp/closed/file /tmp/closed
	mkdir /tmp/cache; : >/tmp/cache/file; ln -s /$(head -c 2000 /dev/zero | tr '\\0' x) /tmp/cache/link; chmod 555 /tmp/cache
	mkdir /tmp/hidden; head -c 1M /dev/zero >/tmp/hidden/file; chmod 400 /tmp/hidden
	head -c 1M /dev/zero >>/home/builder/of-the-image
	(while :; do head -c 1M /dev/zero >/tmp/again; sleep 0.01; done) &
	echo done >/bullpen/job/of-the-volume`

// files lists everything of a container but its mounts.
func (c *container) files() (paths []string) {
	require.NoError(c.p, filepath.WalkDir(c.root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && path != c.root {
			paths = append(paths, strings.TrimPrefix(path, c.root+"/"))
		}
		return err
	}))
	return paths
}

// blocks is the disk that a container's files have, in bytes.
func (c *container) blocks() (sum int64) {
	for _, path := range c.files() {
		var stat unix.Stat_t
		require.NoError(c.p, unix.Lstat(c.at(path), &stat))
		if stat.Mode&unix.S_IFMT == unix.S_IFREG {
			sum += stat.Blocks * 512
		}
	}
	return sum
}

func TestGuard_JOB5_AnEndedContainerGivesItsDiskBack(t *testing.T) {
	for name, user := range map[string]string{"as root": "0:0", "as another user": "1500:1600"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			require.NoError(t, volume.Want(p.dir, "step-0"))
			c := p.begin("step-0", withRoot(func(root string) {
				path := filepath.Join(root, "home/builder/of-the-image")
				require.NoError(t, os.WriteFile(path, nil, 0o600))
				require.NoError(t, os.Chown(path, 1500, 1600)) // in a directory of root's
				awaitLaterTimes(t, path)
			}), asUser(user))
			require.NoError(t, c.Wait(await.Context(t)), c.log)
			image := c.files()

			got := c.run(client.Process{Argv: []string{"sh", "-c", fill}})
			require.Zero(t, got.Code, got.stderr)
			require.Greater(t, c.blocks(), int64(4<<20))
			_, err := c.End(await.Context(t), 0)
			require.NoError(t, err)
			c.requireGone("it was asked to end")
			require.Zero(t, c.cmd.ProcessState.ExitCode(), c.log)

			require.Less(t, c.blocks(), int64(64<<10))
			require.Subset(t, image, c.files(), "what came later is gone")
			for _, path := range []string{"etc/os-release", "etc/passwd", "usr", "bin"} {
				require.Contains(t, c.files(), path, "of the image")
			}
			require.FileExists(t, filepath.Join(p.dir, "of-the-volume"))
			p.hold.Release()
		})
	}
}

// The exit code of a guard shows that it could not remove all files. Kubernetes does not count them.
func TestGuard_JOB5_FilesThatAreLeftAreReported(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	c := p.add("step-0")
	got := c.sh(`dir=/tmp; for i in $(seq 600); do mkdir $dir/d && cd $dir/d && dir=. || exit; done; head -c 1M /dev/zero >file`)
	require.Zero(t, got.Code, got.stderr)
	_, err := c.End(t.Context(), 0)
	require.NoError(t, err)
	c.requireGone("it was asked to end")
	require.Equal(t, 1, c.cmd.ProcessState.ExitCode())
}

// Logs on the node are counted toward no limit once their container has exited: no process of a job may write one.
func TestGuard_JOB5_JobsDoNotWriteTheLogOnTheNode(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("service-0")
	got := c.sh(`echo of a health check >/proc/1/fd/1; echo of a cron job >/proc/1/fd/2
		for fd in /proc/1/fd/*; do timeout 1 sh -c "echo through $fd >$fd"; done 2>/dev/null; true`)
	require.Zero(t, got.Code, got.stderr)
	require.Eventually(t, func() bool {
		stdout, stderr := c.logs()
		return strings.Contains(stdout, "of a health check\n") && strings.Contains(stderr, "of a cron job\n")
	}, await.Limit, 10*time.Millisecond, "it is among the logs of the container's main process")
	_, err := c.End(t.Context(), 0)
	require.NoError(t, err)
	c.requireGone("it was asked to end")
	require.NotContains(t, c.log.String(), "of a")
	require.NotContains(t, c.log.String(), "through")
}

// A container that ends with its runner does not keep the pod from being terminal.
func TestGuard_JOB2_FilesStayWhenTheRunnerEnds(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	c := p.add("step-0")
	require.Zero(t, c.sh(": >/tmp/file").Code)
	p.hold.Release()
	c.requireGone("it ends with its runner")
	require.Equal(t, jobcontainer.ExitRunnerEnded, c.cmd.ProcessState.ExitCode())
	require.FileExists(t, c.at("tmp/file"))
}

// awaitLaterTimes waits until what is written has a later time than the file, by more than the grain of the kernel's clock.
func awaitLaterTimes(t *testing.T, path string) {
	t.Helper()
	var stat unix.Stat_t
	require.NoError(t, unix.Lstat(path, &stat))
	limit := time.Unix(stat.Ctim.Unix()).Add(100 * time.Millisecond)
	require.Eventually(t, func() bool { return time.Now().After(limit) }, await.Limit, 10*time.Millisecond)
}
