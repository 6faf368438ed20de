package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/cli/doctor"
)

// DoctorTimeout is how long the doctor waits for each answer, unless it is told otherwise.
const DoctorTimeout = 10 * time.Second

// PrintReport writes what the doctor has found: with table and wide for people, a paragraph for each finding.
func PrintReport(w io.Writer, format Format, report doctor.Report) error {
	if format == FormatJSON || format == FormatYAML {
		return Print(w, format, report, Table{})
	}
	var text strings.Builder
	for _, f := range report.Findings {
		fmt.Fprintf(&text, "%-9s%s (%s)\n", f.Severity, printable(f.Sentence), f.Code)
		fmt.Fprintf(&text, "%-9s%s\n\n", "", printable(f.Remedy))
	}
	for _, u := range report.Unchecked {
		fmt.Fprintf(&text, "%-9sCould not look at %s: %s.\n", "unknown", printable(u.What), strings.TrimSuffix(printable(u.Why), "."))
		if u.Remedy != "" {
			fmt.Fprintf(&text, "%-9s%s\n", "", printable(u.Remedy))
		}
		text.WriteString("\n")
	}
	looked := "nothing"
	if len(report.Checked) > 0 {
		looked = strings.Join(report.Checked, ", ")
	}
	fmt.Fprintf(&text, "Looked at: %s. %d found, %d could not be looked at.\n", looked, len(report.Findings), len(report.Unchecked))
	_, err := io.WriteString(w, text.String())
	return err
}
