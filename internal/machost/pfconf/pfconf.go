package pfconf

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Anchor is a filter anchor, and the file that its rules are loaded from.
type Anchor struct {
	// Name is the anchor's name, such as "bullpen.runners": letters, digits, '.', '_' and '-'.
	Name string
	// File is the absolute path of its rules: letters, digits and / . _ -.
	File string
}

var (
	plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	plainFile = regexp.MustCompile(`^/[A-Za-z0-9/._-]+$`)
)

// Validate says what of the anchor pf.conf could not hold.
func (a Anchor) Validate() error {
	if !plainName.MatchString(a.Name) {
		return fmt.Errorf("anchor name %q: use letters, digits, '.', '_' and '-'", a.Name)
	}
	if !plainFile.MatchString(a.File) {
		return fmt.Errorf("anchor file %q: give an absolute path of letters, digits and / . _ -", a.File)
	}
	return nil
}

// Block is what the file ends with once the anchor is attached.
func (a Anchor) Block() string {
	return begin(a.Name) + "\n" +
		fmt.Sprintf("anchor %q\n", a.Name) +
		fmt.Sprintf("load anchor %q from %q\n", a.Name, a.File) +
		end(a.Name) + "\n"
}

func begin(name string) string { return "# BEGIN " + name }
func end(name string) string   { return "# END " + name }

// InlineError reports that the file defines the rules of the anchor itself, between braces. No version of ours wrote that, and removing it
// would lose an administrator's rules.
type InlineError struct {
	Anchor string
	Line   int // from 1
}

// Error is the sentence for a person.
func (e *InlineError) Error() string {
	return fmt.Sprintf("line %d of pf.conf defines the rules of anchor %q between braces: move them to another anchor, or remove them, and apply again",
		e.Line, e.Anchor)
}

// Attach returns the text with the anchor attached exactly once, by the canonical block at its end. All lines that attach the anchor, or
// one of its former names, are removed: marked blocks, and unmarked lines with the comment above them that names the anchor. All else stays
// as it is, byte for byte, except for a missing final newline. Attach of its own result changes nothing. The error is an *InlineError, or
// that of Validate.
func Attach(text string, anchor Anchor, former ...string) (string, error) {
	if err := anchor.Validate(); err != nil {
		return "", err
	}
	text, err := Detach(text, append([]string{anchor.Name}, former...)...)
	if err != nil {
		return "", err
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	// The last line may go on in the next one, and would swallow the block's first line, a comment.
	if endsContinued(text) {
		text += "\n"
	}
	return text + anchor.Block(), nil
}

// Detach returns the text without anything that attaches one of the anchors. The error is an *InlineError.
func Detach(text string, names ...string) (string, error) {
	for {
		left, err := detachOnce(text, names)
		if err != nil || left == text {
			return left, err
		}
		// The removed lines may have been inside another block of ours.
		text = left
	}
}

func detachOnce(text string, names []string) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	drop := make([]bool, len(lines))
	dropMarked(lines, drop, names)
	if err := dropUnmarked(lines, drop, names); err != nil {
		return "", err
	}
	var left strings.Builder
	for i, line := range lines {
		if !drop[i] {
			left.WriteString(line)
		}
	}
	return left.String(), nil
}

// dropMarked removes marked blocks. A mark without its other half, as a crash may leave it, is removed alone: the lines after it may not be
// ours. So are two marks around one of Apple's hooks, which no version ever wrote between its own.
func dropMarked(lines []string, drop []bool, names []string) {
	for _, name := range names {
		open := -1
		for i, line := range lines {
			switch strings.TrimSpace(line) {
			case begin(name):
				drop[i] = true
				open = i
			case end(name):
				drop[i] = true
				if open >= 0 && !slices.ContainsFunc(lines[open:i], isAppleHook) {
					for j := open; j < i; j++ {
						drop[j] = true
					}
				}
				open = -1
			}
		}
	}
}

func isAppleHook(line string) bool {
	line = strings.TrimSpace(line)
	return !strings.HasPrefix(line, "#") && strings.Contains(line, "com.apple")
}

// dropUnmarked removes statements that attach an anchor, and the comments right above them that name it.
func dropUnmarked(lines []string, drop []bool, names []string) error {
	for i := 0; i < len(lines); i++ {
		statement, last := logicalLine(lines, i)
		name, inline := attaches(statement)
		ours := name != "" && slices.Contains(names, name)
		if ours && !drop[i] {
			if inline {
				return &InlineError{Anchor: name, Line: i + 1}
			}
			for j := i; j <= last; j++ {
				drop[j] = true
			}
			dropCommentsAbove(lines, drop, i, name)
		}
		i = last
	}
	return nil
}

func dropCommentsAbove(lines []string, drop []bool, i int, name string) {
	for j := i - 1; j >= 0; j-- {
		line := strings.TrimSpace(lines[j])
		if drop[j] {
			continue
		}
		if !strings.HasPrefix(line, "#") || !strings.Contains(line, name) {
			return
		}
		drop[j] = true
	}
}

// logicalLine joins the line at i with its continuations after a backslash, and returns the index of the last.
func logicalLine(lines []string, i int) (string, int) {
	statement := lines[i]
	for {
		body, continued := cutContinuation(statement)
		if !continued || i+1 >= len(lines) {
			return statement, i
		}
		i++
		statement = body + " " + lines[i]
	}
}

func cutContinuation(line string) (string, bool) {
	return strings.CutSuffix(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), `\`)
}

func endsContinued(text string) bool {
	_, continued := cutContinuation(text)
	return continued
}

// statement finds `anchor NAME` and `load anchor NAME from …` at a line's start, with or without quotes.
var statement = regexp.MustCompile(`^\s*(load\s+)?anchor\s+(?:"([^"]*)"|([^\s"{]+))(.*)$`)

// attaches names the anchor that a statement attaches, if it is one; inline says that its rules follow between braces.
func attaches(line string) (name string, inline bool) {
	found := statement.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
	if found == nil {
		return "", false
	}
	rest, _, _ := strings.Cut(found[4], "#")
	return found[2] + found[3], found[1] == "" && strings.Contains(rest, "{")
}
