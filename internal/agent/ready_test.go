package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// EXCL-6: the pod's own sign. A configuration is none, a job is, and nothing that a job does revokes it.
func TestReady_EXCL4_EXCL6_UntilAJobStarts(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "listen DIR")
	said := c.listen()
	require.Error(t, Ready(c.options.JITFile, ""), "the supervisor does not run yet")
	c.start()
	c.await("runner.idle")
	require.NoError(t, Ready(c.options.JITFile, ""))
	c.stage(jitText)
	c.await("online")
	require.NoError(t, Ready(c.options.JITFile, ""), "it is online, and has no job")
	touch(filepath.Join(c.dir, "assign"))
	c.await("busy")
	require.Error(t, Ready(c.options.JITFile, ""), "from the hook on, before the job's first step")
	awaitLine(t, said, "a job has started")
	require.NoError(t, os.Remove(filepath.Join(c.dir, "job-started")))
	require.Error(t, Ready(c.options.JITFile, ""), "a workflow that clears the directory does not look idle")
	touch(filepath.Join(c.dir, "runner.jobless")) // nor does one that tries to: it could harm none but itself
	require.Eventually(t, func() bool { return Ready(c.options.JITFile, "") != nil }, 20*time.Second, 5*time.Millisecond)
	touch(filepath.Join(c.dir, "finish"))
	require.Equal(t, 5, c.code())
}

// EXCL-6: the worker of GitHub's runner is a sign, whatever hook the image has.
func TestReady_EXCL6_AWorkerIsASign(t *testing.T) {
	if !seesWorkers {
		t.Skip("processes cannot be seen here")
	}
	t.Parallel()
	c := newContainer(t, "worker DIR")
	c.options.Environ = append(c.options.Environ, envHook+"=/opt/hook.js")
	c.start()
	c.stage(jitText)
	c.await("online")
	require.NoError(t, Ready(c.options.JITFile, ""))
	touch(filepath.Join(c.dir, "assign"))
	require.Eventually(t, func() bool { return Ready(c.options.JITFile, "") != nil }, 20*time.Second, 5*time.Millisecond)
	touch(filepath.Join(c.dir, "finish"))
	require.Zero(t, c.code())
}

func TestReady_EXCL4_EverySignCounts(t *testing.T) {
	t.Parallel()
	jit := filepath.Join(t.TempDir(), "jitconfig")
	f := filesIn(jit, "")
	require.Error(t, Ready(jit, ""), "it asks for a positive sign")
	touch(f.jobless)
	require.NoError(t, Ready(jit, ""))
	touch(f.jobStarted)
	require.Error(t, Ready(jit, ""))
}
