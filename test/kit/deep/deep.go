package deep

import (
	"os"
	"testing"
)

// Env is set, to any value, for the long tests.
const Env = "BULLPEN_TEST_DEEP"

// Enabled reports whether the long tests run.
func Enabled() bool { return os.Getenv(Env) != "" }

// Only skips a test that has a smaller instance in make test, which the reason names.
func Only(t testing.TB, smaller string) {
	t.Helper()
	if !Enabled() {
		t.Skipf("runs in make test-deep; the smaller instance is %s", smaller)
	}
}
