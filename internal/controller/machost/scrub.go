package machost

import (
	"errors"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// scrubber removes the secrets of one attempt from a text. The output of a Mac holds no secret (HOST-6); this is the defence against a
// program there that repeats its input.
type scrubber struct {
	redactor *machost.Redactor
	key      []string // lines of the private key
}

func newScrubber(r Request) scrubber {
	s := scrubber{redactor: machost.NewRedactor(r.Secrets)}
	for line := range strings.Lines(r.Key.Reveal()) {
		if line = strings.TrimSpace(line); len(line) >= 20 && !strings.HasPrefix(line, "-----") {
			s.key = append(s.key, line)
		}
	}
	return s
}

// text is the text without secrets and control characters, on one line, and of a length that fits a condition.
func (s scrubber) text(text string) string {
	text = s.redactor.Text(text)
	for _, line := range s.key {
		if strings.Contains(text, line) {
			return "(redacted: contains the SSH key)"
		}
	}
	return printable(text, longestText)
}

// longestText is how much of a Mac's text is kept.
const longestText = 700

func printable(text string, longest int) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// error is an error with only its scrubbed text.
func (s scrubber) error(err error) error { return errors.New(s.text(err.Error())) }

// stepName is what a step may be called, to become the type of a condition.
var stepName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+){0,6}$`)

// messageOf returns a step's message from one of its events.
func messageOf(e machost.Event) string {
	parts := []string{e.Message}
	if e.Message == "" {
		parts = []string{strings.Join(e.Changes, "; ")}
	}
	if e.File != "" && !strings.Contains(parts[0], e.File) {
		parts = append([]string{e.File}, parts...)
	}
	text := strings.Join(parts, ": ")
	if e.Remedy != "" && !strings.Contains(text, e.Remedy) {
		text += ". " + e.Remedy
	}
	return text
}
