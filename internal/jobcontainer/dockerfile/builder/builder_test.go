package builder

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClient_TheBuilderMayEnd(t *testing.T) {
	_, err := NewClient(filepath.Join(t.TempDir(), "absent")).Make(t.Context(), Request{}, io.Discard)
	require.ErrorIs(t, err, ErrLost)
	for _, body := range []string{"", `{"output":"x"}` + "\n", "not JSON\n", `{"built":`, strings.Repeat("x", maxEvent+1)} {
		_, err := follow(t.Context(), strings.NewReader(body), io.Discard)
		require.ErrorIs(t, err, ErrLost)
	}
}

// FuzzFollow: other processes of the job could be where the builder was.
func FuzzFollow(f *testing.F) {
	f.Add([]byte("{\"output\":\"a\"}\n{\"built\":{\"image\":\"sha256:x\",\"config\":{}}}\n"))
	f.Add([]byte(`{"failure":"no"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = follow(t.Context(), bytes.NewReader(body), io.Discard)
	})
}
