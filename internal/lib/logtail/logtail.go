package logtail

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// The end of a log that is kept.
const (
	Lines = 200
	Bytes = 64 << 10
)

// Of returns the last Lines lines of a log, and no more than Bytes of them: whole lines, unless the last one is longer than
// that. It is valid UTF-8 that PostgreSQL accepts and that no terminal obeys: invalid text is replaced, colours and control
// characters other than tabs and newlines are removed. cut says that there was more.
func Of(log []byte) (tail string, cut bool) {
	text := strings.TrimRight(clean(log), "\n")
	if at := lastLines(text, Lines); at > 0 {
		text, cut = text[at:], true
	}
	if len(text) > Bytes {
		cut = true
		text = text[len(text)-Bytes:]
		if at := strings.IndexByte(text, '\n'); at >= 0 {
			text = text[at+1:]
		}
		for len(text) > 0 && !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
	}
	return text, cut
}

// lastLines is the index at which the last lines begin; 0 when there are no more.
func lastLines(text string, lines int) int {
	at := len(text)
	for range lines {
		if at = strings.LastIndexByte(text[:at], '\n'); at < 0 {
			return 0
		}
	}
	return at + 1
}

// sequences are what terminals obey: colours, movements, titles.
var sequences = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])`)

func clean(log []byte) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return -1
		default:
			return r
		}
	}, sequences.ReplaceAllString(strings.ToValidUTF8(string(log), "\uFFFD"), ""))
}
