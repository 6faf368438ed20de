package agent

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestSupervise_JOB2_HoldsJobContainersFromBeforeTheJobToTheRunnersEnd(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "listen DIR")
	jobs, err := os.MkdirTemp("", "j") // short: a socket's path has at most 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(jobs) })
	c.options.JobDir = jobs
	c.start()
	c.await("runner.idle")
	// Before there is a configuration, a container that started would be held.
	lock, err := os.Open(filepath.Join(jobs, "lock"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Close() })
	held := func() bool {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
		if err == nil {
			require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_UN))
		}
		return err != nil
	}
	require.True(t, held())
	ended, err := volume.Watch(jobs)
	require.NoError(t, err)
	connection, err := net.Dial("unix", filepath.Join(jobs, "runner.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })

	c.stage(jitText)
	c.await("online")
	c.stop() // asked to stop: the job and its containers go on
	require.True(t, held())
	touch(filepath.Join(c.dir, "assign"))
	c.await("busy")
	require.True(t, held())
	select {
	case <-ended:
		t.Fatal("a guard took the runner for ended")
	default:
	}
	touch(filepath.Join(c.dir, "finish"))
	require.Equal(t, 5, c.code())
	await.Receive(t, ended, "a guard sees the runner's end")
	require.Eventually(t, func() bool { return !held() }, await.Limit, time.Millisecond)
	require.NoError(t, connection.SetDeadline(time.Now().Add(await.Limit)))
	_, err = connection.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = volume.Watch(jobs)
	require.ErrorIs(t, err, volume.ErrRunnerEnded)
}

func TestSupervise_SaysWhyItCannotHoldJobContainers(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "exit 0")
	c.options.JobDir = filepath.Join(c.dir, "absent")
	err := Supervise(t.Context(), c.options)
	require.ErrorContains(t, err, "starting the runner's supervisor: locking the volume of job containers")
}
