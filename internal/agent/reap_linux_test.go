package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// orphanScript leaves a process without its parent, which soon ends, and waits for the file "finish".
const orphanScript = `sh -c 'sleep 0.3 & echo $! > DIR/orphan.tmp'; mv DIR/orphan.tmp DIR/orphan; while [ ! -e DIR/finish ]; do sleep 0.02; done`

func init() { // another of the modes that TestMain knows, on this system only
	dir, ours := strings.CutPrefix(os.Getenv(modeEnv), "first ")
	if !ours {
		return
	}
	if err := superviseAsFirst(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(70)
	}
	os.Exit(0)
}

// superviseAsFirst supervises as PID 1 of a container does.
func superviseAsFirst(dir string) error {
	const setChildSubreaper = 36
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
		return errno
	}
	return Supervise(context.Background(), SuperviseOptions{
		JITFile: filepath.Join(dir, "jitconfig"), Environ: os.Environ(), Reap: true,
		Command: []string{"/bin/sh", "-c", strings.ReplaceAll(orphanScript, "DIR", dir)},
	})
}

func TestSupervise_ReapsWhatLosesItsParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	touch(filepath.Join(dir, "jitconfig"), jitText)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), modeEnv+"=first "+dir)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	var orphan string
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(filepath.Join(dir, "orphan"))
		orphan = strings.TrimSpace(string(content))
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
	require.NotEmpty(t, orphan)
	reaped := func() bool { return !exists(filepath.Join("/proc", orphan)) }
	require.Eventually(t, reaped, 30*time.Second, 5*time.Millisecond, "process %s stays dead in the table", orphan)
	touch(filepath.Join(dir, "finish"))
	require.NoError(t, await.Call(t, cmd.Wait, "the supervisor exits"), "the runner's own end was kept")
}
