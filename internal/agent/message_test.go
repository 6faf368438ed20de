package agent

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Kubernetes counts the termination message toward no limit: a job could fill the node's disk with it (TEN-6).
func TestSupervise_TEN6_TheTerminationMessageStaysSmall(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "")
	c.options.MessageFile = filepath.Join(c.dir, "termination-log")
	c.options.Command = []string{"sh", "-c", `head -c 1M /dev/zero >"$0"; for i in $(seq 3000); do [ -s "$0" ] || exit 0; sleep 0.01; done; exit 1`, c.options.MessageFile}
	c.start()
	c.await("runner.idle")
	c.stage(jitText)
	require.Zero(t, c.code())
}
