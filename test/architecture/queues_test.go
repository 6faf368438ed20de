package architecture

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// RECV-5: each controller has the options of internal/controller/queues. The library's default queue can hang on shutdown, which goes
// unnoticed until a leader is late.
func TestControllers_RECV5_TakeTheirQueuesFromOnePlace(t *testing.T) {
	found := 0
	require.NoError(t, filepath.WalkDir(filepath.Join("..", "..", "internal"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(content), "ControllerManagedBy(") {
			return err
		}
		found++
		require.Contains(t, string(content), "WithOptions(queues.Options(", path)
		return nil
	}))
	require.Positive(t, found)
}
