package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/cli/doctor"
)

// DoctorTimeout is the default timeout of each request of the doctor.
const DoctorTimeout = 10 * time.Second

// PrintReport writes the doctor's findings: a paragraph each with table and wide.
func PrintReport(w io.Writer, format Format, report doctor.Report) error {
	if format == FormatJSON || format == FormatYAML {
		return Print(w, format, report, Table{})
	}
	var text strings.Builder
	coloured := Coloured(w)
	for _, f := range report.Findings {
		fmt.Fprintf(&text, "%s%s (%s)\n", severity(f.Severity, coloured), printable(f.Sentence), f.Code)
		fmt.Fprintf(&text, "%-9s%s\n\n", "", printable(f.Remedy))
	}
	for _, u := range report.Unchecked {
		fmt.Fprintf(&text, "%-9sCould not check %s: %s.\n", "unknown", printable(u.What), strings.TrimSuffix(printable(u.Why), "."))
		if u.Remedy != "" {
			fmt.Fprintf(&text, "%-9s%s\n", "", printable(u.Remedy))
		}
		text.WriteString("\n")
	}
	text.WriteString(summary(report) + "\n")
	_, err := io.WriteString(w, text.String())
	return err
}

func severity(s doctor.Severity, coloured bool) string {
	text := fmt.Sprintf("%-9s", s)
	switch {
	case !coloured:
		return text
	case s == doctor.SeverityError:
		return Red.paint(text)
	}
	return Yellow.paint(text)
}

// summary is the last line of a report.
func summary(report doctor.Report) string {
	checked := "Checked nothing: "
	if names := report.Checked; len(names) == 1 {
		checked = "Checked " + names[0] + ": "
	} else if last := len(names) - 1; last > 0 {
		checked = "Checked " + strings.Join(names[:last], ", ") + " and " + names[last] + ": "
	}
	text := "no problems found"
	switch n := len(report.Findings); n {
	case 0:
	case 1:
		text = "1 problem found"
	default:
		text = fmt.Sprintf("%d problems found", n)
	}
	switch n := len(report.Unchecked); n {
	case 0:
	case 1:
		text += ", 1 check could not run"
	default:
		text += fmt.Sprintf(", %d checks could not run", n)
	}
	return checked + text + "."
}
