package realnode

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// Two imports name images one after the other, also of two processes, and one that is given up leaves the other alone.
func TestLockImports_ServesOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "import.lock")
	unlock, err := lockImports(t.Context(), path)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = lockImports(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	second := make(chan func(), 1)
	go func() {
		if unlock, err := lockImports(t.Context(), path); err == nil {
			second <- unlock
		}
	}()
	require.Empty(t, second)
	unlock()
	await.Receive(t, second, "the lock")()
}
