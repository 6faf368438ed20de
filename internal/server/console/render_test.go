package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Durations by the server's clock are shown to the millisecond, and those from GitHub's whole seconds never more precisely than that.
func TestTook_IsAsExactAsItsClock(t *testing.T) {
	for _, c := range []struct {
		d     time.Duration
		whole bool
		want  string
	}{
		{211 * time.Millisecond, false, "211ms"},
		{211 * time.Millisecond, true, "<1s"},
		{0, true, "<1s"},
		{1499 * time.Millisecond, true, "1s"},
		{1499 * time.Millisecond, false, "1.499s"},
		{9600 * time.Millisecond, true, "10s"},
		{125 * time.Second, true, "2m 05s"},
		{125 * time.Minute, false, "2h 05m"},
	} {
		require.Equal(t, c.want, took(c.d, c.whole), "%s %t", c.d, c.whole)
	}
}
