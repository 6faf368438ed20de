package agent

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// logLines gets each line of a log.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// A job that builds an image finds the daemon, whose container may start after the runner's.
func TestSupervise_ShowsNoSignsBeforeTheSocketThatItsJobNeeds(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "exit 3")
	c.options.AwaitSocket = filepath.Join(c.dir, "buildkitd.sock")
	lines := make(logLines, 16)
	c.options.Log = slog.New(slog.NewTextHandler(lines, nil))
	c.start()
	require.Contains(t, await.Receive(t, lines, "the first line of the log"), "waiting for another container")
	require.NoFileExists(t, filepath.Join(c.dir, "runner.idle"))
	touch(c.options.AwaitSocket)
	c.await("runner.idle")
	c.stage(jitText)
	require.Equal(t, 3, c.code())

	c = newContainer(t, "exit 3")
	c.options.AwaitSocket = filepath.Join(c.dir, "buildkitd.sock")
	c.stage(jitText)
	c.start()
	c.stop()
	require.Zero(t, c.code(), "a pod whose daemon never starts can be deleted")
	require.Empty(t, c.out.String())
	require.FileExists(t, filepath.Join(c.dir, "runner.exited"), "and its container idle ends")
}
