package recovery

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page says how many combinations of evidence there are, and is right.
func TestDocs_CountTheCombinations(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/recovery.md")
	require.NoError(t, err)
	visited := everyEvidence(func(Evidence) {})
	require.Greater(t, visited, 1000)
	require.Contains(t, string(page), fmt.Sprintf("all %d,%03d combinations", visited/1000, visited%1000))
}

// RECV-9: the page for administrators names every kind and every reason.
func TestDocs_RECV9_NameEveryKindAndReason(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/recovery.md")
	require.NoError(t, err)
	for _, kind := range Kinds() {
		require.Contains(t, string(page), "| `"+string(kind)+"` |")
	}
	for _, reason := range []string{
		skipUnreadable, skipDisagree, skipQuota, skipBusy, skipOvertaken, skipOff, skipCap, skipFailed, skipEmptyList, skipListFailed, skipFrozen,
	} {
		require.Contains(t, string(page), "`"+reason+"`")
	}
}
