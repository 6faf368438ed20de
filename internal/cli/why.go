package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// PrintWhy writes the explanation for people: the job in a line, and then each cause with its remedy.
func PrintWhy(w io.Writer, answer adminapi.Why, now time.Time) error {
	var b strings.Builder
	if j := answer.Job; j != nil {
		fmt.Fprintf(&b, "Job %d, %s of %s", j.ID, printable(j.Name), printable(j.Repository))
		if len(j.Labels) > 0 {
			fmt.Fprintf(&b, ", runs-on: %s", printable(strings.Join(j.Labels, ", ")))
		}
		state := jobState(*j)
		if Coloured(w) {
			state = paintJob("STATE", state).paint(printable(state))
		}
		fmt.Fprintf(&b, ": %s", state)
		if j.StartedAt == nil && j.CompletedAt == nil {
			fmt.Fprintf(&b, " for %s", waited(*j, now))
		}
		b.WriteString("\n")
	} else {
		fmt.Fprintf(&b, "Job %d\n", answer.JobID)
	}
	for _, reason := range answer.Reasons {
		fmt.Fprintf(&b, "\n%s (%s)\n", printable(reason.Sentence), reason.Code)
		if reason.Until != nil {
			fmt.Fprintf(&b, "  Clears in %s.\n", short(reason.Until.Sub(now)))
		}
		if reason.Remedy != "" {
			fmt.Fprintf(&b, "  %s\n", printable(reason.Remedy))
		}
	}
	if j := answer.Job; j != nil && j.URL != "" {
		fmt.Fprintf(&b, "\nGitHub   %s\n", printable(j.URL))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
