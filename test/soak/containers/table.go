package containers

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcome is what GitHub says of a job after the soak.
type Outcome struct {
	Number       int
	Conclusion   string // empty: it is not completed
	Started      time.Time
	Completed    time.Time
	Acquisitions int
	Vanished     bool // its runner fell silent while it ran
	Cancelled    time.Time
	Log          string
	Images       []string // that it asked for, without their tags: what a kubelet says has the digest in place of it
}

// Strike is a fault as it happened.
type Strike struct {
	Kind     Kind
	From, To time.Time
}

// Evidence is what was seen of a soak.
type Evidence struct {
	Jobs    []Outcome
	Strikes []Strike
	// Left, after all jobs had ended and the pool was deleted: of Bullpen's, of Kubernetes', of containerd's, of GitHub's.
	Claims, Pods, Secrets, Containers, Registrations []string
	// Exposed are the places in which the registry's password was found.
	Exposed []string
}

// endBound is how long a cancelled job may take to end, with one fault in between.
const endBound = 2 * time.Minute

// Row is a line of the table: it has to be empty.
type Row struct {
	Name     string
	Findings []string
}

// Examine returns the table.
func Examine(e Evidence) []Row {
	rows := []Row{
		{Name: "jobs lost"}, {Name: "jobs run twice"}, {Name: "jobs killed while they ran"}, {Name: "jobs failed without a fault of the registry"},
		{Name: "failures without a clear text"}, {Name: "cancelled jobs that did not end"},
	}
	for _, job := range e.Jobs {
		for i, finding := range examine(job, e.Strikes) {
			if finding != "" {
				rows[i].Findings = append(rows[i].Findings, fmt.Sprintf("job %d: %s\n%s", job.Number, finding, job.Log))
			}
		}
	}
	return append(rows,
		Row{"claims left", e.Claims}, Row{"pods left", e.Pods}, Row{"pull Secrets left", e.Secrets}, Row{"containers left on the node", e.Containers},
		Row{"registrations left at GitHub", e.Registrations}, Row{"secrets seen", e.Exposed},
	)
}

// examine returns what is wrong with a job, for each of the first rows.
func examine(j Outcome, strikes []Strike) (findings [6]string) {
	cancelled := !j.Cancelled.IsZero()
	switch {
	case j.Conclusion == "":
		findings[0] = "not completed"
	case j.Acquisitions == 0 && !cancelled:
		findings[0] = "completed as " + j.Conclusion + ", and no runner had it"
	case j.Acquisitions > 1:
		findings[1] = fmt.Sprintf("%d runners had it", j.Acquisitions)
	case j.Vanished:
		findings[2] = "its runner fell silent"
	case j.Conclusion == "failure":
		findings[3], findings[4] = unexcused(j, strikes), unclear(j)
	case j.Conclusion != "success" && (!cancelled || j.Conclusion != "cancelled"):
		findings[3] = "concluded as " + j.Conclusion
	}
	if cancelled && !j.Completed.IsZero() && j.Completed.Sub(j.Cancelled) > endBound {
		findings[5] = fmt.Sprintf("it ended %s after it was cancelled", j.Completed.Sub(j.Cancelled).Round(time.Second))
	}
	return findings
}

// unexcused says that no fault of the registry met a failed job.
func unexcused(j Outcome, strikes []Strike) string {
	if slices.ContainsFunc(strikes, func(s Strike) bool {
		return s.Kind.Excuses() && s.From.Before(j.Completed) && s.To.After(j.Started)
	}) {
		return ""
	}
	return fmt.Sprintf("failed between %s and %s", j.Started.Format(time.TimeOnly), j.Completed.Format(time.TimeOnly))
}

// unclear says that a failed job's log does not name the image that it could not have, in a sentence.
func unclear(j Outcome) string {
	for line := range strings.Lines(j.Log) {
		if !strings.Contains(line, "##[error]") {
			continue
		}
		for _, image := range j.Images {
			if strings.Contains(line, "mage '"+image+":") || strings.Contains(line, "mage '"+image+"@") {
				return ""
			}
		}
	}
	return "no error of its log names the image"
}
