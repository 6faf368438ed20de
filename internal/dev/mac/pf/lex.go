package pf

import (
	"fmt"
	"strings"
)

// token is a word, a quoted string, a sign or the end of a line.
type token struct {
	text   string
	line   int
	quoted bool
}

func (t token) is(text string) bool { return !t.quoted && t.text == text }

const newline = "\n"

// signs that stand for themselves, longer ones first.
var signs = []string{"!=", ">=", "<=", "<>", "><", "->", "{", "}", "(", ")", "=", "<", ">", ",", "!"}

// syntaxError is what is wrong with a line of a file.
type syntaxError struct {
	file string
	line int
	text string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s:%d: %s", e.file, e.line, e.text) }

func lex(file, text string) ([]token, error) {
	var tokens []token
	line := 1
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\n':
			tokens = append(tokens, token{text: newline, line: line})
			line++
			i++
		case c == '\\' && i+1 < len(text) && text[i+1] == '\n':
			line++
			i += 2
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				// A comment continues in the next line after a backslash.
				if text[i] == '\\' && i+1 < len(text) && text[i+1] == '\n' {
					line++
					i++
				}
				i++
			}
		case c == '"' || c == '\'':
			end := strings.IndexByte(text[i+1:], c)
			if end < 0 {
				return nil, &syntaxError{file, line, "unterminated quoted string"}
			}
			word := text[i+1 : i+1+end]
			tokens = append(tokens, token{text: word, line: line, quoted: true})
			line += strings.Count(word, "\n")
			i += end + 2
		default:
			if sign := signAt(text[i:]); sign != "" {
				tokens = append(tokens, token{text: sign, line: line})
				i += len(sign)
				continue
			}
			end := i
			for end < len(text) && !strings.ContainsRune(" \t\r\n#\"'\\", rune(text[end])) && signAt(text[end:]) == "" {
				end++
			}
			if end == i {
				return nil, &syntaxError{file, line, "syntax error"}
			}
			tokens = append(tokens, token{text: text[i:end], line: line})
			i = end
		}
	}
	return append(tokens, token{text: newline, line: line}), nil
}

func signAt(text string) string {
	for _, s := range signs {
		if strings.HasPrefix(text, s) {
			return s
		}
	}
	return ""
}
