//go:build unix

package tarttest

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

// Main builds the fake, runs the tests of a package with its path, and returns their exit code: to be called by TestMain. The
// test binary itself would do as the fake, but with the race detector it takes a second to start.
func Main(run func() int, tart *string) int {
	dir, err := os.MkdirTemp("", "faketart")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for the fake of Tart:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	*tart = filepath.Join(dir, "tart")
	if err := gobuild.Build(*tart, "github.com/bullpen-ci/bullpen/test/kit/faketart"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run()
}
