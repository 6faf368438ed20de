package controller

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// A log of any length costs bounded memory, and its end is what is kept.
func TestLastBytes(t *testing.T) {
	for _, c := range []struct{ log, want string }{
		{"", ""}, {"short", "short"}, {"exactly 10", "exactly 10"}, {"and now eleven", "now eleven"}, {strings.Repeat("x", 100_000) + "the end...", "the end..."},
	} {
		for _, from := range []io.Reader{strings.NewReader(c.log), iotest.OneByteReader(strings.NewReader(c.log)), iotest.DataErrReader(strings.NewReader(c.log))} {
			got, err := lastBytes(from, 10)
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		}
	}
	broken := errors.New("the kubelet went away")
	_, err := lastBytes(io.MultiReader(bytes.NewReader([]byte("half")), iotest.ErrReader(broken)), 10)
	require.ErrorIs(t, err, broken)
}
