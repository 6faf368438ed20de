package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/examples"
)

// macs is the `bullpen up` that the tests of Macs share, one after the other: to start one costs half a minute of a processor. The test that
// kills it is the last of them, in up_macos_test.go.
var macs *shared

type shared struct {
	dir string
	box *running
	w   *where
}

// macsUp is macs, started if it is not there. It prepares the model Macs below root; empty: none.
func macsUp(t *testing.T, root string) *shared {
	t.Helper()
	if macs != nil {
		require.NotNil(t, macs.w, "it did not come up for the test before")
		return macs
	}
	dir, err := os.MkdirTemp("", "bullpen-e2e-")
	require.NoError(t, err)
	// The pool on the stand-in for a Mac has no runners until a test scales it: each runner is probed every five seconds, which starts three
	// programs.
	pools := strings.Replace(string(examples.Pool()), "replicas: 4", "replicas: 1", 1) + "\n---\n" +
		strings.Replace(string(examples.MacPool()), "replicas: 2", "replicas: 0", 1)
	args := []string{"up", "--json", "--state-dir", dir, "--macos", "--pool-file", writeFile(t, "pools.yaml", pools)}
	if root != "" {
		args = append(args, "--mac-hosts", root)
	}
	macs = &shared{dir: dir, box: begin(t, bullpen(t, args...))}
	macs.w = macs.box.ready(t)
	return macs
}

// passTo has the test end it. No later test uses it.
func (s *shared) passTo(t *testing.T) {
	t.Helper()
	macs = nil
	t.Cleanup(func() { deleteState(t, s.dir) })
	t.Cleanup(func() { s.box.end(t) })
}

// endMacs ends it if no test has: the last one was not run, or failed before.
func endMacs() error {
	if macs == nil {
		return nil
	}
	_ = macs.box.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-macs.box.ended:
	case <-time.After(2 * patience):
		return errors.New("the bullpen up of the Macs does not end")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if output, err := exec.CommandContext(ctx, binary, "down", "--delete", "--yes", "--state-dir", macs.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("ending the bullpen up of the Macs: %w\n%s", err, output)
	}
	return nil
}
