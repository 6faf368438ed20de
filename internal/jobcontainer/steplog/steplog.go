package steplog

import (
	"strings"
	"unicode"
)

// Error returns the line that shows text as an error of the job.
func Error(text string) string { return "::error::" + escape(text) }

// Warning returns the line that shows text as a warning of the job.
func Warning(text string) string { return "::warning::" + escape(text) }

// Debug returns the line that shows text if debug logging is on.
func Debug(text string) string { return "::debug::" + escape(text) }

// Group returns the line that begins a group, which the log shows folded. Groups can't be nested.
func Group(title string) string { return "##[group]" + flatten(title) }

// EndGroup returns the line that ends a group.
func EndGroup() string { return "##[endgroup]" }

// escape returns text as the data of a command. The runner replaces the same three and nothing else.
func escape(text string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(text)
}

// flatten returns text as the title of a group. The web page shows it as it is, so line breaks become spaces.
func flatten(text string) string {
	return Line(strings.NewReplacer("\r", " ", "\n", " ").Replace(text))
}

// Lines splits text from outside as the runner does, at \n, \r and both, and returns each line as Line does. A last line that is
// empty is left out.
func Lines(text string) []string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	for i, line := range lines {
		lines[i] = Line(line)
	}
	return lines
}

// Line returns one line of text from outside so that the runner reads no command in it. Almost all lines stay as they are. A line
// that begins like a command gets "| " in front, and "##[" becomes "# #[".
func Line(line string) string {
	line = strings.NewReplacer("\r", " ", "\n", " ").Replace(line)
	plain := visible(line)
	if !strings.HasPrefix(plain, "::") && !strings.Contains(plain, "##[") {
		return line
	}
	line = strings.ReplaceAll(plain, "##[", "# #[")
	if strings.HasPrefix(line, "::") {
		line = "| " + line
	}
	return line
}

// visible removes what .NET's comparison of strings may ignore, which depends on the culture: with a soft hyphen between its colons,
// a command is still a command. It also removes leading white space, as the runner does.
func visible(line string) string {
	kept := strings.Map(func(r rune) rune {
		if r != '\t' && (!unicode.IsGraphic(r) || unicode.IsMark(r)) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, line)
	return strings.TrimLeftFunc(kept, unicode.IsSpace)
}
