package logtail_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/logtail"
)

func TestOf(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for name, c := range map[string]struct {
		log, want string
		cut       bool
	}{
		"nothing":                     {"", "", false},
		"a line":                      {"out of memory\n", "out of memory", false},
		"as many lines as are kept":   {strings.Repeat("a\n", logtail.Lines), strings.TrimSpace(strings.Repeat("a\n", logtail.Lines)), false},
		"one line more":               {"first\n" + strings.Repeat("a\n", logtail.Lines), strings.TrimSpace(strings.Repeat("a\n", logtail.Lines)), true},
		"longer lines than are kept":  {strings.Repeat(long+"\n", 100), strings.TrimSpace(strings.Repeat(long+"\n", 65)), true},
		"one line without an end":     {strings.Repeat("y", logtail.Bytes+5), strings.Repeat("y", logtail.Bytes), true},
		"a character that is cut":     {"\u20ac" + strings.Repeat("y", logtail.Bytes-1), strings.Repeat("y", logtail.Bytes-1), true},
		"no text":                     {"a\x00b\xff\xfec\rd\x07\te\x1b[31mred\x1b[0m\x1b]0;title\x07\x1bc\x1b", "ab\ufffdcd\teredc", false},
		"empty lines before the end":  {"a\n\n\nb\r\n\r\n", "a\n\n\nb", false},
		"a terminal's other controls": {"a\u009bb\x7f", "ab", false},
	} {
		got, cut := logtail.Of([]byte(c.log))
		require.Equal(t, c.want, got, name)
		require.Equal(t, c.cut, cut, name)
	}
}

func FuzzOf(f *testing.F) {
	f.Add([]byte("a\nb\x00\xff"))
	f.Add(bytes.Repeat([]byte("ä\n"), 300))
	f.Fuzz(func(t *testing.T, log []byte) {
		tail, _ := logtail.Of(log)
		require.True(t, utf8.ValidString(tail))
		require.NotContains(t, tail, "\x00")
		require.LessOrEqual(t, len(tail), logtail.Bytes)
		require.LessOrEqual(t, strings.Count(tail, "\n"), logtail.Lines-1)
		again, more := logtail.Of([]byte(tail))
		require.Equal(t, tail, again, "it is its own end")
		require.False(t, more)
	})
}
