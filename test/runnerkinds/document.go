package runnerkinds

import (
	"fmt"
	"strings"
)

// Standard says how an item relates to what the field has.
type Standard string

// The standards.
const (
	// Matched: the field's oldest system does so, and it is right.
	Matched Standard = "as elsewhere"
	// Better: it lacks this, or gets it wrong.
	Better Standard = "better than elsewhere"
	// Regression: it was broken there once, and fixed.
	Regression Standard = "broken elsewhere once"
)

// Test is a test function of this repository, and the directory of its package.
type Test struct{ Folder, Name string }

// Item is one expectation.
type Item struct {
	// ID names it permanently: the section's number and its own.
	ID       string
	Standard Standard
	// Expected is the expectation, Here how it is met, or how Bullpen differs. Markdown.
	Expected, Here string
	Shown          []Test
	// Commits fixed a Regression where it was. The name of a test, or of a case of it, has each.
	Commits []string
	// Missing says what of it is not here yet. An item without a test has it.
	Missing string
}

// Section is a group of items.
type Section struct {
	Title string
	Items []Item
}

// in names tests of a package.
func in(dir string, names ...string) []Test {
	tests := make([]Test, len(names))
	for i, name := range names {
		tests[i] = Test{dir, name}
	}
	return tests
}

func join(groups ...[]Test) []Test {
	var all []Test
	for _, group := range groups {
		all = append(all, group...)
	}
	return all
}

// Document is docs/reference/runner-kinds.md.
func Document() string {
	var b strings.Builder
	items, shown := 0, 0
	for _, section := range Sections() {
		for _, item := range section.Items {
			items++
			if len(item.Shown) > 0 {
				shown++
			}
		}
	}
	fmt.Fprintf(&b, `# Self-registering runners, item by item

<!-- Written by make generate from the registry in test/runnerkinds; make verify and the tests compare. -->

What the kinds Runner, RunnerReplicaSet, RunnerDeployment and RunnerSet do, as a list that can be checked: %d expectations, of which
%d are shown by tests that the suite checks to exist. *As elsewhere*: the field's oldest system of this kind does so, and whoever
comes from it may rely on it. *Better than elsewhere*: it lacks that. *Broken elsewhere once*: a regression there that is a test here.
How to use the kinds is in [the guide](../guides/self-registering-runners.md).

Code and tests cite an item by its id after a letter: K 2.2 is item 2.2, which is as elsewhere, and F 2.8 is item 2.8, which is better
than elsewhere.
`, items, shown)
	for _, section := range Sections() {
		fmt.Fprintf(&b, "\n## %s\n", section.Title)
		for _, item := range section.Items {
			item.write(&b)
		}
	}
	return b.String()
}

func (i Item) write(b *strings.Builder) {
	mended := ""
	if len(i.Commits) > 0 {
		mended = ", mended there in " + strings.Join(i.Commits, ", ")
	}
	fmt.Fprintf(b, "\n**%s** (%s%s). %s\n", i.ID, i.Standard, mended, flow(i.Expected))
	if i.Here != "" {
		fmt.Fprintf(b, "%s\n", flow(i.Here))
	}
	if i.Missing != "" {
		fmt.Fprintf(b, "*Not here yet:* %s\n", flow(i.Missing))
	}
	for n, test := range i.Shown {
		if n == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(b, "- [%s](../../%s) `%s`\n", test.Folder, test.Folder, test.Name)
	}
}

// flow is a text that the registry writes over several lines, as one paragraph.
func flow(text string) string { return strings.Join(strings.Fields(text), " ") }
