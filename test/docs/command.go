package docs

import (
	"regexp"
	"slices"
	"strings"
)

// Command is one line of a shell, continued lines joined.
type Command struct {
	Block
	Shell string // as it is written, without its comment
	// Unverified says why it was not tried; empty: a test runs or checks it.
	Unverified string
}

// Mark begins the comment that says why a command was not tried: at the end of its line, or on a line of its own for the
// rest of the block.
const Mark = "# unverified: "

// query is a line that is asked of Prometheus, beside commands: its metrics are looked for by other tests.
var query = regexp.MustCompile(`^(max|min|sum|time|rate|increase|up)\b.*[({]`)

// programs begin a line that is a command. A line of a fence that is called sh, and one after "$ ", is always a command.
var programs = []string{
	"bullpen", "bin/bullpen", "bullpen-migrate", "bin/bullpen-migrate", "kubectl", "helm", "make", "go", "curl", "sudo", "git", "tail", "head", "openssl", "psql", "pg_dump", "pg_restore", "ssh", "scp", "tart",
	"launchctl", "kind", "ctr", "oras", "crane", "echo", "source", "jq", "systemctl", "gh", "docker", "mktemp", "cd", "export", "apt-get", "brew", "xattr", "chmod", "install",
	"mkdir", "cat", "rm", "cp", "mv", "base64", "printf", "promtool", "autoload", "pfctl", "wg", "createdb", "etcdctl", "kubeadm", "cosign", "defaults", "sysctl", "dscl",
}

// Commands are those of a block; none if it is no shell.
func Commands(b Block) []Command {
	lines := strings.Split(b.Text, "\n")
	prompted := slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "$ ") })
	shell := slices.Contains([]string{"sh", "bash", "shell", "console"}, b.Language) || prompted
	if !shell && (b.Language != "" || !slices.Contains(programs, first(lines))) {
		return nil
	}
	var commands []Command
	why := ""
	for i := 0; i < len(lines); i++ {
		line, at := lines[i], b.Line+i
		if prompted {
			if !strings.HasPrefix(line, "$ ") {
				continue // what it prints
			}
			line = strings.TrimPrefix(line, "$ ")
		}
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + strings.TrimSpace(lines[i])
		}
		trimmed := strings.TrimSpace(line)
		if reason, is := strings.CutPrefix(trimmed, Mark); is {
			why = reason
			continue
		}
		if trimmed == "" || strings.HasPrefix(trimmed, "#") || query.MatchString(trimmed) {
			continue
		}
		written, comment := uncommented(trimmed)
		one := Command{Block: b, Shell: written, Unverified: why}
		one.Line = at
		if reason, is := strings.CutPrefix(comment, Mark); is {
			one.Unverified = reason
		}
		commands = append(commands, one)
	}
	return commands
}

// first is the first word of the first line that is no comment, without what is set before it.
func first(lines []string) string {
	for _, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, word := range strings.Fields(line) {
			name, value, assigns := strings.Cut(word, "=")
			switch {
			case assigns && strings.HasPrefix(value, "$("):
				return "export" // the assigned value comes from a command
			case word == `\`, assigns && strings.ToUpper(name) == name:
				continue
			}
			return word
		}
	}
	return ""
}

// uncommented parts a line from the comment behind it.
func uncommented(line string) (written, comment string) {
	var quote rune
	for i, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r == '#' && i > 0 && line[i-1] == ' ':
			return strings.TrimSpace(line[:i]), line[i:]
		}
	}
	return line, ""
}

// assignment is what is set before a command.
var assignment = regexp.MustCompile(`^[A-Za-z_]\w*=`)

// closing is where the parenthesis ends that has been opened before a place.
func closing(line string, from int) int {
	depth := 1
	for i := from; i < len(line); i++ {
		switch line[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(line)
}

// Parts are the programs that a line of a shell starts, each as its words without quotes: those of a pipe, and those in $(…). Redirections
// and assignments before a command are left out.
func (c Command) Parts() [][]string {
	var parts [][]string
	var words []string
	var word strings.Builder
	started, redirected := false, false
	endWord := func() {
		if started && !redirected {
			words = append(words, word.String())
		}
		if started {
			redirected = false
		}
		word.Reset()
		started = false
	}
	endPart := func() {
		endWord()
		for len(words) > 0 {
			if !assignment.MatchString(words[0]) {
				break
			}
			words = words[1:]
		}
		if len(words) > 0 {
			parts = append(parts, words)
		}
		words, redirected = nil, false
	}
	var quote rune
	line := c.Shell
	for i := 0; i < len(line); i++ {
		r := rune(line[i])
		switch {
		case quote != '\'' && strings.HasPrefix(line[i:], "$("):
			end := closing(line, i+2)
			parts = append(parts, Command{Shell: line[i+2 : end]}.Parts()...)
			word.WriteString("x") // what it prints
			started, i = true, end
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteByte(line[i])
			}
		case r == '\'' || r == '"':
			quote, started = r, true
		case r == '<' || r == '>':
			if digits := word.String(); digits != "" && strings.Trim(digits, "0123456789") == "" { // of a file descriptor
				word.Reset()
				started = false
			}
			endWord()
			redirected = true
		case strings.ContainsRune("|;&", r):
			endPart()
		case r == ' ':
			endWord()
		default:
			started = true
			word.WriteByte(line[i])
		}
	}
	endPart()
	return parts
}
