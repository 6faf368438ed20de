package incidents

import (
	"fmt"
	"strings"
)

// Document is docs/incidents.md.
func Document() string {
	var b strings.Builder
	b.WriteString(introduction())
	for _, chapter := range Chapters() {
		fmt.Fprintf(&b, "\n## %s\n", chapter.Title)
		for _, incident := range chapter.Incidents {
			incident.write(&b)
		}
	}
	return b.String()
}

func introduction() string {
	all := All()
	scenarios, others, missing, impossible := 0, 0, 0, 0
	reported := 0
	for _, i := range all {
		if i.Report != (Report{}) {
			reported++
		}
		switch {
		case i.inSuite():
			scenarios++
		case len(i.Shown) > 0:
			others++
		case i.Missing != "":
			missing++
		default:
			impossible++
		}
	}
	return fmt.Sprintf(`# Incidents

<!-- Written by make generate from the registry in test/incidents; make verify and the tests compare. -->

Failures of other fleets of runners, and what happens here under the same conditions. *The reference fleet* published its
outages, and this project began with them; *a peer* is any other open fleet. A *flaw* is a weakness that its authors or readers found, whether
or not it has caused a failure. *Report* links the public report of an incident, with its day or month: %d have one. An entry without a link
is of the reference fleet, or from published code and documentation for which we know of no report.

Of %d incidents, %d are scenarios in [test/incidents](../test/incidents), which reproduce the conditions on the real parts.
Tests of other packages show %d; the suite checks that they exist. For %d the part does not exist here yet, and %d cannot be
reproduced. Under *Control* the same test also does what the other fleet did, and observes the failure: a scenario that no
system can fail would show nothing. Ids such as CLAIM-7 are those of [the invariants](internals/invariants.md): %s finds the code and the tests of one.
`, reported, len(all), scenarios, others, missing, impossible, "`grep -rn CLAIM-7`")
}

// inSuite reports whether a scenario of this package shows it.
func (i Incident) inSuite() bool {
	for _, test := range i.Shown {
		if test.Package == "" {
			return true
		}
	}
	return false
}

func (i Incident) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n### <a id=%q></a>%s\n\n", i.ID, i.Title)
	source := string(i.Source)
	if i.Flaw {
		source += ", a flaw"
	}
	fmt.Fprintf(b, "**Elsewhere** (%s). %s\n\n", source, flow(i.Elsewhere))
	if r := i.Report; r != (Report{}) {
		fmt.Fprintf(b, "**Report.** <%s>, %s.\n\n", r.URL, r.Date)
	}
	fmt.Fprintf(b, "**Here.** %s", flow(i.Here))
	if len(i.Rules) > 0 {
		fmt.Fprintf(b, " (%s)", strings.Join(i.Rules, ", "))
	}
	b.WriteString("\n")
	if i.Control != "" {
		fmt.Fprintf(b, "\n**Control.** %s\n", flow(i.Control))
	}
	if i.Missing != "" {
		fmt.Fprintf(b, "\n**Not here yet.** %s\n", flow(i.Missing))
	}
	if i.Impossible != "" {
		fmt.Fprintf(b, "\n**Cannot be reproduced.** %s\n", flow(i.Impossible))
	}
	for n, test := range i.Shown {
		if n == 0 {
			b.WriteString("\n**Shown by**\n")
		}
		fmt.Fprintf(b, "- [%s](../%s) `%s`\n", test.Folder(), test.Folder(), test.Name)
	}
}

// flow is a text that the registry writes over several lines, as one paragraph.
func flow(text string) string { return strings.Join(strings.Fields(text), " ") }
