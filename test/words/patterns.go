package words

import (
	"regexp"
	"strings"
)

// Kind is where a text stands.
type Kind int

const (
	// Comment is a comment in Go.
	Comment Kind = iota
	// Message is a string literal in Go that ships: an error, a line of a log, help.
	Message
	// Page is a page of the documentation.
	Page
	// Chart is a file of the Helm chart, an example, another YAML file, a script, or the Makefile.
	Chart
)

// Pattern is one wording to avoid.
type Pattern struct {
	Name    string
	Instead string
	Pronoun bool // a person in place of an actor's name: it has a budget instead of a ban
	Read    bool // only in what users read

	stem  string // a lower-case part of every match: most texts are passed over without the expression
	match *regexp.Regexp
}

func pattern(name, stem, expression, instead string) Pattern {
	return Pattern{Name: name, Instead: instead, stem: stem, match: regexp.MustCompile(`(?i)\b(?:` + expression + `)\b`)}
}

func pronoun(name, stem, expression, instead string) Pattern {
	p := pattern(name, stem, expression, instead)
	p.Pronoun = true
	return p
}

func inMessages(name, stem, expression, instead string) Pattern {
	p := pattern(name, stem, expression, instead)
	p.Read = true
	return p
}

// Patterns are all of them.
var Patterns = []Pattern{
	pronoun("whoever", "ever", `who(?:m)?ever`, "name the actor: the client, the controller, the next owner"),
	pronoun("nobody", "nobody", `nobody`, "name what does not: no client, no test, nothing"),
	pronoun("somebody", "somebody", `somebody`, "name the actor: a user, an administrator, another process"),
	pattern("everybody", "ybody", `anybody|everybody`, "name the actor: any user, every client"),
	pattern("told", "told", `told`, "reported, notified, received, known, asked (to stop)"),
	pattern("tell of", "tell", `tell(?:s|ing)?\s+of`, "report, announce"),
	pattern("look at", "look", `look(?:s|ed|ing)?\s+at|a\s+look`, "read, check, inspect, list, consider"),
	pattern("go away", "away", `(?:go|goes|going|gone|went)\s+away`, "is deleted, exits, disappears, disconnects"),
	pattern("let go", "let", `let(?:s|ting)?\s+(?:\w+\s+){0,2}go`, "release, close, drop, continue"),
	pattern("the latest first", "latest", `the\s+latest\s+first`, "newest first"),
	pattern("how long it may", "how", `how\s+long\s+(?:it|they|one|that)\s+may`, "timeout, or maximum duration"),
	pattern("at work", "work", `at\s+work`, "running, busy, active"),
	inMessages("by itself", "sel", `by\s+(?:itself|themselves)`, "automatically, or leave it out"),
	pattern("as a rule", "rule", `as\s+a\s+rule`, "usually"),
	inMessages("meanwhile", "meanwhile", `meanwhile`, "concurrently, in the meantime, or leave it out"),
	pattern("folder", "folder", `folders?`, "directory"),
	pattern("wished", "wished", `wished`, "desired"),
	pattern("anew", "anew", `anew`, "again"),
	pattern("in vain", "vain", `in\s+vain`, "without success, failed"),
	pattern("believe", "believe", `believe[sd]?`, "trust, cache, accept"),
	pattern("heard of", "hear", `heard?\s+of|hears\s+of`, "known, received, reported"),
	pattern("mend", "mend", `mend(?:s|ed|ing)?`, "repair, fix"),
}

// Text is what is searched: one comment, literal or page.
type Text struct {
	File string // from the top of the repository
	Line int    // of its first line
	Kind Kind
	Body string
}

// Finding is one wording at its place.
type Finding struct {
	File    string
	Line    int
	Pattern *Pattern
}

// Search finds the patterns in a text.
func Search(text Text) []Finding {
	var found []Finding
	lower := strings.ToLower(text.Body)
	for i := range Patterns {
		p := &Patterns[i]
		if p.Read && text.Kind == Comment || !strings.Contains(lower, p.stem) {
			continue
		}
		for _, at := range p.match.FindAllStringIndex(lower, -1) {
			if at[0] > 0 && strings.IndexByte("-=", lower[at[0]-1]) >= 0 {
				continue // a part of a name, such as work-folder
			}
			found = append(found, Finding{File: text.File, Line: text.Line + strings.Count(lower[:at[0]], "\n"), Pattern: p})
		}
	}
	return found
}
