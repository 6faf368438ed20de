package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// mostUnservedProblems is how many label sets that no pool serves are problems of their own; the others are counted in one.
const mostUnservedProblems = 5

// unservedProblems are the jobs that no pool serves, a problem for each label set (CLAIM-21).
func unservedProblems(u *adminapi.UnservedJobs) []string {
	if u == nil || u.Jobs == 0 {
		return nil
	}
	var problems []string
	left := u.Jobs
	for _, set := range u.LabelSets[:min(mostUnservedProblems, len(u.LabelSets))] {
		problems = append(problems, strings.TrimSpace(set.Sentence+" "+set.Remedy))
		left -= set.Jobs
	}
	if left > 0 {
		problems = append(problems, fmt.Sprintf("%s queued for other labels that no pool serves; `bullpen status -o json` lists them.", jobs(left)))
	}
	return problems
}

// UnservedText counts the jobs that no pool serves and those for GitHub's own and other runners; empty where there are none.
func UnservedText(u *adminapi.UnservedJobs, now time.Time) string {
	if u == nil {
		return ""
	}
	var counts []string
	if u.Jobs > 0 {
		more := ""
		if u.More {
			more = "+"
		}
		text := strconv.FormatInt(u.Jobs, 10) + more + " with no pool"
		if u.Oldest != nil {
			text += " (oldest " + short(now.Sub(*u.Oldest)) + ")"
		}
		counts = append(counts, text)
	}
	if u.GitHubHosted > 0 {
		counts = append(counts, strconv.FormatInt(u.GitHubHosted, 10)+" for GitHub's own runners")
	}
	if u.OtherRunners > 0 {
		counts = append(counts, strconv.FormatInt(u.OtherRunners, 10)+" for other runners")
	}
	return strings.Join(counts, ", ")
}
