package runner

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// command is a workflow command that a step printed: ::name key=value,key=value::text.
type command struct {
	name       string
	properties map[string]string
	text       string
}

// parseCommand reads a line; ok is false for ordinary output.
func parseCommand(line string) (c command, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), "::")
	if !ok {
		return command{}, false
	}
	head, text, ok := strings.Cut(rest, "::")
	if !ok {
		return command{}, false
	}
	name, properties, _ := strings.Cut(head, " ")
	if name == "" {
		return command{}, false
	}
	c = command{name: strings.ToLower(name), properties: map[string]string{}, text: unescape(text, false)}
	for pair := range strings.SplitSeq(properties, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			c.properties[strings.ToLower(strings.TrimSpace(key))] = unescape(value, true)
		}
	}
	return c, true
}

var (
	textEscapes     = strings.NewReplacer("%0D", "\r", "%0A", "\n", "%25", "%")
	propertyEscapes = strings.NewReplacer("%0D", "\r", "%0A", "\n", "%3A", ":", "%2C", ",", "%25", "%")
)

func unescape(s string, property bool) string {
	if property {
		return propertyEscapes.Replace(s)
	}
	return textEscapes.Replace(s)
}

// levels of annotations by command.
var levels = map[string]string{"error": "FAILURE", "warning": "WARNING", "notice": "NOTICE"}

func (c command) annotation(level string) annotation {
	number := func(key string, fallback int64) int64 {
		n, err := strconv.ParseInt(c.properties[key], 10, 64)
		if err != nil || n < 0 {
			return fallback
		}
		return n
	}
	line, col := number("line", 0), number("col", 0)
	return annotation{
		Level: level, Message: c.text, RawDetails: c.properties["title"], Path: c.properties["file"],
		StartLine: line, EndLine: number("endline", line), StartColumn: col, EndColumn: number("endcolumn", col),
	}
}

// variable is a name and a value that a step wrote into one of its command files.
type variable struct{ name, value string }

var errCommandFile = errors.New("bad command file")

// parseVariables reads GITHUB_OUTPUT and GITHUB_ENV: NAME=VALUE, or NAME<<END, lines, END.
func parseVariables(text string) ([]variable, error) {
	var out []variable
	lines := strings.Split(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSuffix(lines[i], "\r")
		if line == "" {
			continue
		}
		equals, heredoc := strings.Index(line, "="), strings.Index(line, "<<")
		if equals > 0 && (heredoc < 0 || equals < heredoc) {
			out = append(out, variable{line[:equals], line[equals+1:]})
			continue
		}
		if heredoc <= 0 || heredoc+2 == len(line) {
			return nil, fmt.Errorf("%w: line %d is neither NAME=VALUE nor NAME<<DELIMITER", errCommandFile, i+1)
		}
		name, delimiter := line[:heredoc], line[heredoc+2:]
		end := i + 1
		for end < len(lines) && strings.TrimSuffix(lines[end], "\r") != delimiter {
			end++
		}
		if end == len(lines) {
			return nil, fmt.Errorf("%w: the delimiter %q of %s never comes", errCommandFile, delimiter, name)
		}
		out = append(out, variable{name, strings.Join(lines[i+1:end], "\n")})
		i = end
	}
	return out, nil
}
