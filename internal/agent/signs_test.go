package agent

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A job may leave a FIFO in the place of any sign. To open it would take for ever, and the pod would not end.
func TestSigns_AFIFOInTheirPlaceHoldsNothingUp(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "listen DIR")
	f := filesIn(c.options.JITFile, "")
	c.start()
	c.stage(jitText)
	touch(filepath.Join(c.dir, "assign"))
	c.await("busy")
	require.NoError(t, syscall.Mkfifo(f.exited, 0o600))
	touch(filepath.Join(c.dir, "finish"))
	require.Equal(t, 5, c.code())

	s := newStaticContainer(t)
	s.start()
	s.await("online")
	require.NoError(t, syscall.Mkfifo(filesIn("", s.status).last, 0o600))
	require.NoError(t, syscall.Mkfifo(filesIn("", s.status).held, 0o600))
	s.touch("assign.%d", 1)
	s.await("working.1")
	s.ready(false)
	s.stop()
	s.touch("finish.%d", 1)
	s.touch("report.%d", 1)
	touch(filepath.Join(s.dir, "removed"))
	require.Zero(t, s.code())
	require.FileExists(t, filepath.Join(s.dir, "reported.1"))
}

// GitHub's runner says with 7 that its version is refused. Such a runner never has a job: another has a job that makes it say so, which would slow
// the whole pool down (RUN-7).
func TestSupervise_RUN7_AJobDoesNotTellThatItsRunnerIsOutdated(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "listen DIR")
	c.start()
	c.stage(jitText)
	touch(filepath.Join(c.dir, "assign"))
	c.await("busy")
	touch(filepath.Join(c.dir, "finish"), "7")
	require.Equal(t, 1, c.code())
}
