package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the server's clock has measured is shown to the millisecond, and what is of GitHub's whole seconds never more exactly than that.
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
