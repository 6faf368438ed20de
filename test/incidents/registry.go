package incidents

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Incident is something that went wrong elsewhere.
type Incident struct {
	// ID names it permanently, and is its anchor in the document: lower case, with hyphens.
	ID string
	// Title says in a line what happened.
	Title string
	// Source is where it happened. Flaw: it is a weakness of the source that its authors or readers have found, and no
	// more is known of what it has done.
	Source Source
	Flaw   bool
	// Report is the public report of it; zero where none is known.
	Report Report
	// Elsewhere is what happened there, and why; Here is what happens under the same conditions. Markdown.
	Elsewhere, Here string
	// Rules are the invariants that keep it from happening here, as tests and guards carry them: "CLAIM-7".
	Rules []string
	// Shown are the tests that show it.
	Shown []Test
	// Control is what the older behaviour leads to in the same test; empty without one.
	Control string
	// Missing says which part that it concerns does not exist yet. Impossible says why it, or a part of it, cannot be
	// reproduced. An incident without a test has one of them.
	Missing, Impossible string
}

// Report is a public report: an issue or a pull request.
type Report struct {
	URL  string
	Date string // the day it was written, as 2006-01-02, or the month, as 2006-01
}

// check says what is wrong with a report.
func (r Report) check() error {
	if r == (Report{}) {
		return nil
	}
	if u, err := url.Parse(r.URL); err != nil || u.Scheme != "https" || u.Host == "" || u.Path == "" {
		return fmt.Errorf("%q is no https URL of a page", r.URL)
	}
	if _, err := time.Parse("2006-01", r.Date); err == nil {
		return nil
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil {
		return fmt.Errorf("the date of %s: %w", r.URL, err)
	}
	return nil
}

// Source is where an incident happened.
type Source string

// The sources. All of them keep runners for a workflow service.
const (
	ReferenceFleet Source = "the reference fleet"
	Peer           Source = "a peer"
)

// Test is a test function of this repository.
type Test struct {
	// Package is its directory; empty for this one.
	Package string
	Name    string
}

// Directory is where the test's package is, from the top of the repository.
func (t Test) Folder() string {
	if t.Package == "" {
		return "test/incidents"
	}
	return t.Package
}

// in names tests of another package.
func in(dir string, names ...string) []Test {
	tests := make([]Test, len(names))
	for i, name := range names {
		tests[i] = Test{dir, name}
	}
	return tests
}

// Chapter is incidents that belong together.
type Chapter struct {
	Title     string
	Incidents []Incident
}

// Chapters is the registry.
func Chapters() []Chapter {
	return []Chapter{
		{"Runners that were taken while they worked", aboutRemovals},
		{"Claims that came apart from their pods", aboutClaims},
		{"Minting and GitHub", aboutMinting},
		{"Messages that came late, twice or never", aboutMessages},
		{"Recovery that did harm, or did nothing", aboutRecovering},
		{"Queues, room and scaling", aboutScaling},
		{"Nodes", aboutNodes},
		{"Mac hosts", aboutMacHosts},
		{"Clusters with rules", aboutClusters},
		{"Runners that register themselves", aboutSelfRegistering},
		{"Installing and uninstalling", aboutInstalling},
		{"Moving from another fleet", aboutMigrating},
		{"What could not be seen", aboutObserving},
	}
}

// All is every incident, in the document's order.
func All() []Incident {
	var all []Incident
	for _, chapter := range Chapters() {
		all = append(all, chapter.Incidents...)
	}
	return all
}

// join puts tests of several packages together.
func join(groups ...[]Test) []Test { return slices.Concat(groups...) }

// check says what is wrong with an entry in itself.
func (i Incident) check() error {
	name := strings.Trim(i.ID, "abcdefghijklmnopqrstuvwxyz0123456789-")
	switch {
	case i.ID == "" || name != "":
		return fmt.Errorf("incident %q: an id is lower case letters, digits and hyphens", i.ID)
	case i.Title == "" || i.Elsewhere == "" || i.Here == "":
		return fmt.Errorf("incident %s: it needs a title, what happened elsewhere and what happens here", i.ID)
	case !slices.Contains([]Source{ReferenceFleet, Peer}, i.Source):
		return fmt.Errorf("incident %s: %q is no source", i.ID, i.Source)
	case len(i.Shown) == 0 && i.Missing == "" && i.Impossible == "":
		return fmt.Errorf("incident %s: name the test that shows it, or say why there is none", i.ID)
	case len(i.Shown) == 0 && i.Control != "":
		return fmt.Errorf("incident %s: a control without a test shows nothing", i.ID)
	}
	if err := i.Report.check(); err != nil {
		return fmt.Errorf("incident %s: its report: %w", i.ID, err)
	}
	return nil
}
