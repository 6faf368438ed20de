package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// notMessages are quotes with a space that nothing prints: flags, YAML, lists, SQL.
var notMessages = regexp.MustCompile(`^(?:-|\[|SELECT |[\w.-]+: )`)

// ofOthers are messages of other programs, which pages may quote: Kubernetes, Linux, Go, PostgreSQL.
var ofOthers = []string{
	"no matches for kind", "violates PodSecurity", "no such file or directory", "no route to host", "i/o timeout",
	"password authentication failed", "read-only transaction", "remaining connection slots", "too many clients",
}

// messagesOf are the messages that a page quotes. Each must be one of a program, so a page puts anything else with a space that is no
// command, query or setting into another form than backquotes.
func messagesOf(text string) []string {
	var all []string
	for _, quoted := range span.FindAllString(unfenced(text), -1) {
		quote := strings.Trim(quoted, "`")
		name := strings.Fields(quote + " ")
		switch {
		case len(name) < 2, notMessages.MatchString(quote), query.MatchString(quote), strings.Contains(quote, "bullpen_"):
		case slices.Contains(programs, name[0]), name[0] == "ssh-keygen", slices.Contains(ofOthers, quote):
		default:
			all = append(all, quote)
		}
	}
	return all
}

// messageCells are the first cells of a page's tables of messages.
func messageCells(text string) string {
	var cells strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		row := strings.Split(line, "|")
		switch {
		case len(row) < 3:
			inside = false
		case strings.TrimSpace(row[1]) == "message":
			inside = true
		case inside:
			cells.WriteString(row[1] + "\n")
		}
	}
	return cells.String()
}

// grepped are the patterns that a command searches in logs of the product.
var grepped = regexp.MustCompile(`\blogs\b.*\| grep (?:-[Ei] )*'([^']+)'`)

// What a runbook quotes of a log, an Event or a condition is what the programs say. So is what other pages have in tables of messages.
func TestRunbooks_QuoteWhatTheProgramsSay(t *testing.T) {
	literals := shippedLiterals(t)
	quotes, patterns := 0, 0
	var problems []string
	for name, text := range pages(t) {
		if strings.HasPrefix(name, records) || name == "docs/incidents.md" { // what was true then, and elsewhere
			continue
		}
		quoting := text
		if !strings.HasPrefix(name, "docs/runbooks/") && name != "docs/guides/restore.md" {
			quoting = messageCells(text)
		}
		for _, quote := range messagesOf(quoting) {
			quotes++
			if !said(literals, quote) {
				problems = append(problems, name+" quotes a message of no program: "+quote)
			}
		}
		for _, b := range Blocks(name, text) {
			for _, c := range Commands(b) {
				for _, found := range grepped.FindAllStringSubmatch(c.Shell, -1) {
					for _, one := range strings.Split(found[1], "|") {
						patterns++
						if !slices.ContainsFunc(literals, func(l literal) bool { return strings.Contains(l.text, strings.Trim(one, `"`)) }) {
							problems = append(problems, c.At()+" searches logs for what no program writes: "+one)
						}
					}
				}
			}
		}
	}
	slices.Sort(problems)
	require.Empty(t, problems)
	require.Greater(t, quotes, 40)
	require.Greater(t, patterns, 8)
}
