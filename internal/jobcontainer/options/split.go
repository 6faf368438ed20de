package options

import "strings"

const unclosed = "a double quote is not closed"

// splitter reads words. Its rules for double quotes and backslashes are those of .NET on Linux, since the runner starts docker with
// one string: a backslash is itself unless a double quote follows, and "" between double quotes is one.
type splitter struct {
	text   string
	at     int
	words  []string
	word   strings.Builder
	inWord bool
}

// Split splits text into words as GitHub's runner hands its options to docker: at white space, with double quotes around what
// belongs together and \" for a quote (.NET's ProcessStartInfo.Arguments). Single quotes, which are common in scripts, quote as well
// if they are around a whole word or a whole value: 'a b', --name='a b'. A backslash at the end of a line continues it. Nothing is
// expanded.
func Split(text string) ([]string, error) {
	s := &splitter{text: text}
	quoted := false
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '\\':
			s.backslashes(quoted)
		case c == '"' && quoted && strings.HasPrefix(s.text[s.at:], `""`):
			s.add(`"`, 2)
		case c == '"':
			quoted = !quoted
			s.add("", 1)
		case quoted:
			s.add(s.text[s.at:s.at+1], 1)
		case isSpace(c):
			s.end(1)
		case c == '\'' && s.single():
		default:
			s.add(s.text[s.at:s.at+1], 1)
		}
	}
	if quoted {
		return nil, &Error{Problems: []string{"Arguments are invalid: " + unclosed + "."}}
	}
	s.end(0)
	return s.words, nil
}

// Join undoes what the runner does to `args`, `command` and `shell`, which it splits at spaces only, and splits them like Split.
func Join(pieces []string) ([]string, error) { return Split(strings.Join(pieces, " ")) }

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func (s *splitter) add(text string, read int) {
	s.word.WriteString(text)
	s.inWord = true
	s.at += read
}

func (s *splitter) end(read int) {
	if s.inWord {
		s.words = append(s.words, s.word.String())
		s.word.Reset()
		s.inWord = false
	}
	s.at += read
}

func (s *splitter) backslashes(quoted bool) {
	rest := s.text[s.at:]
	count := len(rest) - len(strings.TrimLeft(rest, `\`))
	rest = rest[count:]
	switch {
	case strings.HasPrefix(rest, `"`) && count%2 == 1:
		s.add(strings.Repeat(`\`, count/2)+`"`, count+1)
	case strings.HasPrefix(rest, `"`):
		s.add(strings.Repeat(`\`, count/2), count)
	case !quoted && count == 1 && !s.inWord && (strings.HasPrefix(rest, "\n") || strings.HasPrefix(rest, "\r\n")):
		s.end(1)
	default:
		s.add(strings.Repeat(`\`, count), count)
	}
}

// single reads a single-quoted word or value. It reads nothing if the quote is an apostrophe.
func (s *splitter) single() bool {
	if s.inWord && !strings.HasSuffix(s.word.String(), "=") {
		return false
	}
	rest := s.text[s.at+1:]
	for from := 0; ; {
		i := strings.IndexByte(rest[from:], '\'')
		if i < 0 {
			return false
		}
		end := from + i
		if end+1 == len(rest) || isSpace(rest[end+1]) {
			s.add(rest[:end], end+2)
			return true
		}
		from = end + 1
	}
}
