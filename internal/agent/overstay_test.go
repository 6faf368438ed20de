package agent

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TEN-5: a runner that does not end although the worker of its one job has, stopped by that job or hung, is killed in a bounded time.
func TestSupervise_TEN5_ARunnerThatOutlivesItsWorkerIsKilled(t *testing.T) {
	t.Parallel()
	if !seesWorkers {
		return
	}
	c := newContainer(t, "overstay DIR")
	c.options.Overstay = 50 * time.Millisecond
	c.start()
	c.stage(jitText)
	c.await("online")
	touch(filepath.Join(c.dir, "assign"))
	c.await("stopped")
	require.Equal(t, 128+9, c.code(), c.log.String())
}
