package recovery

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// RECV-9: the page for operators names every kind and every reason.
func TestDocs_RECV9_NameEveryKindAndReason(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/recovery.md")
	require.NoError(t, err)
	for _, kind := range Kinds() {
		require.Contains(t, string(page), "| `"+string(kind)+"` |")
	}
	for _, reason := range []string{
		skipUnreadable, skipDisagree, skipBudget, skipBusy, skipOvertaken, skipOff, skipCap, skipFailed, skipEmptyList, skipListFailed, skipHeld,
	} {
		require.Contains(t, string(page), "`"+reason+"`")
	}
}
