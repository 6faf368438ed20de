//go:build unix

package mac

import (
	"context"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// sudoRule is one line of the sudoers: which user may run which command as which user, and whether without a password.
type sudoRule struct {
	user     string // a name, or %group
	runAs    string // a name, or ALL
	free     bool
	commands []string // paths with arguments, or ALL
}

type sudoers []sudoRule

// Compiled on first use: most commands of the model need none of them, and a test starts thousands of commands.
var (
	sudoLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([%\w.-]+)\s+ALL\s*=\s*(?:\(\s*([\w:, ]+?)\s*\)\s*)?(?:(NOPASSWD|PASSWD)\s*:\s*)?(.+)$`)
	})
	sudoCommand = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(ALL|sudoedit\b.*|!?/\S+(\s.*)?)$`) })
)

// parseSudoers reads a file as far as people write such files for single users: Defaults, comments, includes and rules. The error says the line.
func parseSudoers(file, text string) (sudoers, error) {
	var rules sudoers
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n" // newer versions forgive its absence (likely)
	}
	for number, line := range logicalLines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "@include") || strings.HasPrefix(line, "Defaults") {
			continue
		}
		line, _, _ = strings.Cut(line, " #")
		found := sudoLine().FindStringSubmatch(line)
		if found == nil {
			return nil, syntaxError(file, number, line)
		}
		runAs, _, _ := strings.Cut(found[2], ":")
		rule := sudoRule{user: found[1], runAs: strings.TrimSpace(runAs), free: found[3] == "NOPASSWD"}
		if rule.runAs == "" {
			rule.runAs = "root"
		}
		for _, c := range splitUnescaped(found[4]) {
			c = strings.TrimSpace(c)
			if tag, rest, ok := strings.Cut(c, ":"); ok && (strings.TrimSpace(tag) == "NOPASSWD" || strings.TrimSpace(tag) == "PASSWD") {
				c = strings.TrimSpace(rest)
			}
			if !sudoCommand().MatchString(c) {
				return nil, syntaxError(file, number, line)
			}
			rule.commands = append(rule.commands, c)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func syntaxError(file string, number int, line string) error {
	return failed(1, "%s:%d:%d: syntax error\n%s\n%s^", file, number, len(line), line, strings.Repeat(" ", max(len(line)-1, 0)))
}

// logicalLines are the lines, by their number, with those that a backslash continues as one.
func logicalLines(text string) func(func(int, string) bool) {
	return func(yield func(int, string) bool) {
		lines := strings.Split(text, "\n")
		for i := 0; i < len(lines); i++ {
			first, line := i+1, lines[i]
			for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
				i++
				line = strings.TrimSuffix(line, `\`) + lines[i]
			}
			if !yield(first, line) {
				return
			}
		}
	}
}

func splitUnescaped(text string) []string {
	var parts []string
	start := 0
	for i := 0; i < len(text); i++ {
		if text[i] == ',' && (i == 0 || text[i-1] != '\\') {
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	return append(parts, text[start:])
}

// sudoers are all rules in force. A file of /etc/sudoers.d counts unless its name holds a dot or ends in ~; one that others may write, or
// that has a syntax error, ends every use of sudo.
func (r Root) sudoers() (sudoers, error) {
	files := []string{"/etc/sudoers"}
	entries, err := os.ReadDir(r.Path("/etc/sudoers.d"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.Contains(e.Name(), ".") && !strings.HasSuffix(e.Name(), "~") {
			files = append(files, "/etc/sudoers.d/"+e.Name())
		}
	}
	var all sudoers
	for _, file := range files {
		shown := strings.Replace(file, "/etc/", "/private/etc/", 1)
		if file == "/etc/sudoers" {
			shown = file
		}
		info, err := os.Stat(r.Path(file))
		if err != nil {
			return nil, failed(1, "sudo: unable to open %s: %s\nsudo: error initializing audit plugin sudoers_audit", shown, reason(err))
		}
		if raw, ok := info.Sys().(*syscall.Stat_t); ok && raw.Uid != 0 && int(raw.Uid) != os.Getuid() {
			return nil, failed(1, "sudo: %s is owned by uid %d, should be 0\nsudo: error initializing audit plugin sudoers_audit", shown, raw.Uid)
		}
		if info.Mode().Perm()&0o002 != 0 {
			return nil, failed(1, "sudo: %s is world writable\nsudo: error initializing audit plugin sudoers_audit", shown)
		}
		text, err := os.ReadFile(r.Path(file))
		if err != nil {
			return nil, err
		}
		rules, err := parseSudoers(shown, string(text))
		if err != nil {
			return nil, failed(1, "%s\nsudo: error initializing audit plugin sudoers_audit", err.Error())
		}
		all = append(all, rules...)
	}
	return all, nil
}

// permit reports whether a user may run a command, and whether without a password: the last rule that fits decides.
func (s sudoers) permit(m Machine, user, runAs, logical string, command []string) (allowed, free bool) {
	if user == "root" {
		return true, true
	}
	u, _ := m.user(user)
	for _, rule := range s {
		who := rule.user == user || rule.user == "ALL" || u.Admin && rule.user == "%admin" || rule.user == "%staff"
		if !who || rule.runAs != "ALL" && rule.runAs != runAs {
			continue
		}
		if len(command) == 0 && rule.free || slices.ContainsFunc(rule.commands, func(c string) bool { return commandFits(c, logical, command) }) {
			allowed, free = true, rule.free
		}
	}
	return allowed, free
}

// commandFits compares a command of a rule: a path, which may have wildcards, alone allows any arguments; "" behind it, none; others, only those.
func commandFits(pattern, logical string, command []string) bool {
	if pattern == "ALL" || len(command) == 0 {
		return pattern == "ALL" || len(command) == 0
	}
	file, arguments, has := strings.Cut(pattern, " ")
	if fits, err := path.Match(file, logical); err != nil || !fits {
		return false
	}
	arguments = strings.TrimSpace(arguments)
	if !has || arguments == "" {
		return true
	}
	if arguments == `""` {
		return len(command) == 1
	}
	given := strings.Join(command[1:], " ")
	expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(arguments))
	fits, err := regexp.MatchString("^"+expression+"$", given)
	return err == nil && fits
}

// runVisudo checks: -c, and -f FILE for another file than the system's.
func runVisudo(_ context.Context, c *call) error {
	flags, file := "", "/etc/sudoers"
	for i := 0; i < len(c.Args); i++ {
		a := c.Args[i]
		if !strings.HasPrefix(a, "-") {
			file = a
			continue
		}
		flags += a[1:]
		if strings.HasSuffix(a, "f") && i+1 < len(c.Args) {
			i++
			file = c.Args[i]
		}
	}
	if !strings.Contains(flags, "c") {
		return failed(1, "visudo: the model has no editor: use -c")
	}
	info, err := os.Stat(c.root.Path(file))
	if err != nil {
		return failed(1, "visudo: unable to open %s: %s", file, reason(err))
	}
	text, err := os.ReadFile(c.root.Path(file))
	if err != nil {
		return failed(1, "visudo: unable to open %s: %s", file, reason(err))
	}
	if _, err := parseSudoers(file, string(text)); err != nil {
		return err
	}
	// Without -f it checks mode and owner as well; with -s or -O and -P newer versions do (likely).
	if file == "/etc/sudoers" && info.Mode().Perm() != 0o440 {
		return failed(1, "%s: bad permissions, should be mode 0440", file)
	}
	if !strings.Contains(flags, "q") {
		fmt.Fprintf(c.Stdout, "%s: parsed OK\n", file)
	}
	return nil
}
