package standin

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The log of a job by its steps, for those who read it as it grows: a reader says how many lines of each step it has, and gets the others.

// StepLog is a step of a job, with its output.
type StepLog struct {
	StepView
	// Lines are those that the reader does not have. They carry no timestamps, because lines of the feed have none.
	Lines []string `json:"lines"`
}

// JobLogView is a job with the output of its steps.
type JobLogView struct {
	Job   JobView   `json:"job"` // without its steps
	Steps []StepLog `json:"steps"`
	// Text is the log that the runner uploaded for the job as a whole, if there is no output of its steps.
	Text string `json:"text,omitempty"`
}

// StepLogs returns a job with the output of its steps, without the lines that the reader has: have counts them by the step's number.
func (c *AdminClient) StepLogs(ctx context.Context, id int64, have map[int]int) (JobLogView, error) {
	var counts []string
	for _, step := range slices.Sorted(maps.Keys(have)) {
		counts = append(counts, fmt.Sprintf("%d:%d", step, have[step]))
	}
	query := url.Values{"have": {strings.Join(counts, ",")}}
	return getOf[JobLogView](ctx, c, fmt.Sprintf("/jobs/%d/steps?%s", id, query.Encode()))
}

func (s *Server) adminJobSteps(w http.ResponseWriter, r *http.Request) error {
	have, err := readHave(r.URL.Query().Get("have"))
	if err != nil {
		return err
	}
	job, err := s.adminFindJob(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.stepLogs(job, have))
	return nil
}

// readHave reads "1:20,2:5": 20 lines of step 1, and 5 of step 2.
func readHave(text string) (map[int]int, error) {
	have := map[int]int{}
	if text == "" {
		return have, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		number, count, _ := strings.Cut(pair, ":")
		step, bad := strconv.Atoi(number)
		lines, wrong := strconv.Atoi(count)
		if bad != nil || wrong != nil || lines < 0 {
			return nil, failf(http.StatusBadRequest, "have must be STEP:LINES pairs such as 1:20,2:5, not %q", text)
		}
		have[step] = lines
	}
	return have, nil
}

// stepLogs is read after the job: a job that has completed has all of its log.
func (s *Server) stepLogs(job JobView, have map[int]int) JobLogView {
	view := JobLogView{Steps: make([]StepLog, 0, len(job.Steps))}
	known := false
	for _, step := range job.Steps {
		lines := s.stepLines(job, step.ID)
		known = known || len(lines) > 0
		view.Steps = append(view.Steps, StepLog{StepView: step, Lines: lines[min(have[step.Number], len(lines)):]})
	}
	if !known {
		view.Text, _ = s.blobs.text(blobID(job.ID, "job", ""))
	}
	job.Steps = nil
	view.Job = job
	return view
}

// stepLines is what was uploaded of a step, or what came by the feed where that is more.
func (s *Server) stepLines(job JobView, step string) []string {
	over := job.Status == jobCompleted
	text, _ := s.blobs.text(blobID(job.ID, "step", step))
	uploaded := linesOf(text, over)
	for i, line := range uploaded {
		uploaded[i] = lineStamp.ReplaceAllLiteralString(line, "")
	}
	live, _ := s.live.step(job.ID, step)
	if watched := linesOf(live, over); len(watched) > len(uploaded) {
		return watched
	}
	return uploaded
}

// lineStamp is what runners write before each line of a log that they upload.
var lineStamp = regexp.MustCompile(`^\x{feff}?\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d+Z `)

// linesOf are the lines of a log. The last one counts if it is complete, or if nothing more is written to the log.
func linesOf(text string, over bool) []string {
	if !over {
		text = text[:strings.LastIndexByte(text, '\n')+1]
	}
	all := []string{} // an empty list in JSON
	for line := range strings.Lines(text) {
		all = append(all, strings.TrimRight(line, "\r\n"))
	}
	return all
}
