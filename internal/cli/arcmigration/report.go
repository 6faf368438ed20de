package arcmigration

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Verdict is the result for a field.
type Verdict string

// The verdicts.
const (
	// Dropped: it has an effect that is lost.
	Dropped Verdict = "dropped"
	// ToDo: it was converted, and needs attention before it works.
	ToDo Verdict = "todo"
	// Changed: it was converted, and behaves differently.
	Changed Verdict = "changed"
	// Unneeded: it was not converted, and nothing is lost by that.
	Unneeded Verdict = "unneeded"
	// Failed: the object could not be converted because of it.
	Failed Verdict = "error"
)

// Finding is about one field of an object.
type Finding struct {
	Verdict Verdict `json:"verdict"`
	// Path of the field in the object. Empty: the whole object.
	Path string `json:"path,omitempty"`
	// Names are what the entries of a list, or the entry, are called: containers, volumes, variables.
	Names []string `json:"names,omitempty"`
	// Line and Column of the field's key in the file, from 1, or of what it would lie in; 0 where there is none.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Reason is a sentence; it never holds a value that could be a secret.
	Reason string `json:"reason"`
	// Advice is what to do, as a sentence; empty for nothing.
	Advice string `json:"advice,omitempty"`
}

// Outcome is the result for an object.
type Outcome string

// The outcomes.
const (
	// Converted: it is in the output.
	Converted Outcome = "converted"
	// Merged: it is a part of another object in the output.
	Merged Outcome = "merged"
	// Skipped: only actions-runner-controller needs it, which generated it.
	Skipped Outcome = "skipped"
	// Ignored: it is of another kind.
	Ignored Outcome = "ignored"
	// NotConverted: a finding with the verdict Failed says why.
	NotConverted Outcome = "failed"
)

// Reference names an object.
type Reference struct {
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

func (r Reference) String() string {
	name := r.Name
	if name == "" {
		name = "without a name"
	}
	if r.Namespace != "" {
		name += " in namespace " + r.Namespace
	}
	if r.Kind == "" {
		return name
	}
	return r.Kind + " " + name
}

// Object is one object that was read.
type Object struct {
	File string `json:"file"`
	// Document is its number in the file, from 1, and Item its path in a List.
	Document int    `json:"document"`
	Item     string `json:"item,omitempty"`
	Line     int    `json:"line"`
	Reference
	Outcome Outcome `json:"outcome"`
	// Into is the object that it was converted to.
	Into     *Reference `json:"into,omitempty"`
	Findings []Finding  `json:"findings,omitempty"`
}

// Report has the result for everything that was read.
type Report struct {
	Objects []Object `json:"objects"`
	// Problems are about files, such as one that is no YAML.
	Problems []string `json:"problems,omitempty"`
	// Conflicts is the number of labels that more than one of the results has. Jobs with such a label would not run.
	Conflicts int `json:"conflicts,omitempty"`
	// Notes are about the installation, and not about an object: what it needs for the results to work.
	Notes   []string       `json:"notes,omitempty"`
	Summary map[string]int `json:"summary"`
}

// Failed reports whether something could not be read or converted, or that what was converted cannot be used together.
func (r *Report) Failed() bool {
	return r.Summary[string(Failed)] > 0 || len(r.Problems) > 0 || r.Conflicts > 0
}

// Left is the number of fields that were dropped, or that need attention.
func (r *Report) Left() int { return r.Summary[string(Dropped)] + r.Summary[string(ToDo)] }

func (r *Report) sum() {
	r.Summary = map[string]int{}
	for _, object := range r.Objects {
		r.Summary[string(object.Outcome)]++
		for _, finding := range object.Findings {
			r.Summary[string(finding.Verdict)]++
		}
	}
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	var text strings.Builder
	for _, object := range r.Objects {
		where := fmt.Sprintf("%s, document %d", object.File, object.Document)
		if object.Item != "" {
			where += ", " + object.Item
		}
		into := ""
		if object.Into != nil && object.Outcome == Converted {
			into = " to " + object.Into.String()
		} else if object.Into != nil {
			into = " into " + object.Into.String()
		}
		fmt.Fprintf(&text, "%s, line %d: %s: %s%s\n", where, object.Line, object.Reference, object.Outcome, into)
		for _, finding := range object.Findings {
			finding.print(&text)
		}
	}
	for _, problem := range r.Problems {
		fmt.Fprintf(&text, "error: %s\n", problem)
	}
	if r.Conflicts > 0 {
		fmt.Fprintf(&text, "error: %d labels are in more than one of the results, and jobs with these labels would not run: see the findings on labels above\n", r.Conflicts)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&text, "note: %s\n", note)
	}
	fmt.Fprintf(&text, "%d converted, %d merged, %d failed, %d skipped, %d ignored; fields: %d dropped, %d need attention, %d changed, %d unneeded\n",
		r.Summary[string(Converted)], r.Summary[string(Merged)], r.Summary[string(NotConverted)], r.Summary[string(Skipped)], r.Summary[string(Ignored)],
		r.Summary[string(Dropped)], r.Summary[string(ToDo)], r.Summary[string(Changed)], r.Summary[string(Unneeded)])
	_, err := io.WriteString(w, printable(text.String()))
	return err
}

func (f Finding) print(text *strings.Builder) {
	at := ""
	if f.Line > 0 {
		at = fmt.Sprintf("line %d", f.Line)
	}
	place := f.place()
	if f.Column > 0 {
		place += fmt.Sprintf(", column %d", f.Column)
	}
	fmt.Fprintf(text, "  %-9s %-9s %s\n", f.Verdict, at, place)
	fmt.Fprintf(text, "  %19s %s\n", "", sentence(f.Reason))
	if f.Advice != "" {
		fmt.Fprintf(text, "  %19s %s\n", "", sentence(f.Advice))
	}
}

// place names the field for people.
func (f Finding) place() string {
	if f.Path == "" {
		return "the object"
	}
	if len(f.Names) == 0 {
		return f.Path
	}
	return f.Path + " (" + strings.Join(f.Names, ", ") + ")"
}

// plainWord is a first word that gets a capital; names of fields and images stay as they are.
var plainWord = regexp.MustCompile(`^[a-z]+[ ,:;]`)

// sentence begins with a capital and ends with a stop.
func sentence(text string) string {
	if plainWord.MatchString(text) {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return text + "."
}

// printable removes what could move a terminal's cursor: names in manifests come from outside.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}
