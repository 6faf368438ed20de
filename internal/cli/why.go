package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// PrintWhy writes the answer for people: the job in a line, and then one cause after the other, with what to do about it.
func PrintWhy(w io.Writer, answer adminapi.Why, now time.Time) error {
	var b strings.Builder
	if j := answer.Job; j != nil {
		fmt.Fprintf(&b, "Job %d, %s of %s: %s", j.ID, printable(j.Name), printable(j.Repository), printable(j.Status()))
		if j.StartedAt == nil && j.CompletedAt == nil {
			fmt.Fprintf(&b, " for %s", waited(*j, now))
		}
		if len(j.Labels) > 0 {
			fmt.Fprintf(&b, ", labels %s", printable(strings.Join(j.Labels, ", ")))
		}
		b.WriteString(".\n")
	} else {
		fmt.Fprintf(&b, "Job %d\n", answer.JobID)
	}
	for i, reason := range answer.Reasons {
		mark := "because"
		if i > 0 {
			mark = "besides"
		}
		fmt.Fprintf(&b, "\n%s  %s (%s)\n", mark, printable(reason.Sentence), reason.Code)
		if reason.Until != nil {
			fmt.Fprintf(&b, "         In %s.\n", short(reason.Until.Sub(now)))
		}
		if reason.Remedy != "" {
			fmt.Fprintf(&b, "         %s\n", printable(reason.Remedy))
		}
	}
	if j := answer.Job; j != nil && j.URL != "" {
		fmt.Fprintf(&b, "\nGitHub   %s\n", printable(j.URL))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
