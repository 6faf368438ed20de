package standin

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzCreatedWithin reads the filter of dates of GitHub's run list.
func FuzzCreatedWithin(f *testing.F) {
	for _, seed := range []string{"", ">=2026-01-31T12:00:00Z", "<2026-01-31", "*..2026-01-31", "2026-01-30..*", "2026-01-31", "..", ">", "<=>=x"} {
		f.Add(seed)
	}
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		within, refused := createdWithin(text)
		if refused != nil {
			require.Equal(t, http.StatusUnprocessableEntity, refused.status)
			return
		}
		within(at) // it must not panic
	})
}
