package standin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// messageInput is what a job's message needs to be built for one runner.
type messageInput struct {
	requestID int64
	token     string
	group     string // the runner's
}

func (s *Server) runServiceRoutes(mux *http.ServeMux) {
	s.protocol(mux, "POST "+pathRun+"/acquirejob", s.acquireJob)
	s.protocol(mux, "POST "+pathRun+"/renewjob", s.renewJob)
	s.protocol(mux, "POST "+pathRun+"/completejob", s.completeJob)
	// GitHub's runner drops the path of the launch endpoint, so that this one begins at the root.
	s.protocol(mux, "POST /actions/build/{plan}/jobs/{job}/runnerresolve/actions", s.resolveActions)
}

// acquireJob hands the job itself to the runner that it was assigned to. The same runner may ask again, as it does when
// the answer was lost; any other runner must skip the message.
func (s *Server) acquireJob(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	var q struct {
		JobMessageID string `json:"jobMessageId"`
		StreamID     string `json:"streamId"` // what older clients call it
	}
	if err := readJSON(r, &q); err != nil {
		return runError(err.status, err.Message)
	}
	if q.JobMessageID == "" {
		q.JobMessageID = q.StreamID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.requests[q.JobMessageID]
	switch {
	case j == nil:
		return runError(http.StatusNotFound, "No job waits under this message: it was cancelled, finished, or given to another runner.")
	case j.runner != token.runner:
		return runError(http.StatusConflict, "The job belongs to another runner.")
	case j.state == jobInProgress:
		j.repeats++
	case token.runner.removed:
		return runError(http.StatusNotFound, "The runner's registration has been deleted from the server.")
	default:
		s.startLocked(j)
	}
	message, err := j.build(messageInput{requestID: j.messageID, token: j.token, group: j.groupName})
	if err != nil {
		return fmt.Errorf("building the message of job %d: %w", j.id, err)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(message)
	return nil
}

type jobRef struct {
	PlanID string `json:"planId"`
	JobID  string `json:"jobId"`
}

// runningJobLocked finds the job that a running runner names, and verifies that the runner runs it.
func (s *Server) runningJobLocked(ref jobRef, token *runnerToken) (*job, error) {
	j := s.guids[strings.ToLower(ref.JobID)]
	if j == nil || (ref.PlanID != "" && !strings.EqualFold(ref.PlanID, j.run.planID)) {
		return nil, runError(http.StatusNotFound, "There is no such job.")
	}
	if j.state != jobInProgress || j.runner != token.runner || (token.job != nil && token.job != j) {
		return nil, runError(http.StatusNotFound, "The job is not this runner's, or it has ended.")
	}
	return j, nil
}

func (s *Server) renewJob(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	var q jobRef
	if err := readJSON(r, &q); err != nil {
		return runError(err.status, err.Message)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.runningJobLocked(q, token)
	if err != nil {
		return err
	}
	j.renewedAt = s.now()
	writeJSON(w, http.StatusOK, map[string]string{
		"lockedUntil": j.renewedAt.Add(s.opts.LostAfter).UTC().Format(time.RFC3339Nano),
	})
	return nil
}

type completion struct {
	jobRef
	Conclusion word `json:"conclusion"`
	Outputs    map[string]struct {
		Value string `json:"value"`
	} `json:"outputs"`
	StepResults []stepResult `json:"stepResults"`
}

// word is a value of an enumeration, which clients write as its name or as its number.
type word string

// UnmarshalJSON takes a string, a number or null.
func (t *word) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err == nil {
		*t = word(text)
		return nil
	}
	var number json.Number
	if err := json.Unmarshal(data, &number); err != nil {
		return fmt.Errorf("%.20q is neither a word nor a number", data)
	}
	*t = word(number)
	return nil
}

// conclusion translates the result of a job or a step. The numbers are the runner's own.
func (t word) conclusion() (workflow.Conclusion, bool) {
	byNumber := map[word]string{"0": "succeeded", "1": "succeededWithIssues", "2": "failed", "3": "canceled", "4": "skipped", "5": "abandoned"}
	if name, ok := byNumber[t]; ok {
		return workflow.ConclusionFromResult(name)
	}
	return workflow.ConclusionFromResult(string(t))
}

type stepResult struct {
	ExternalID  string `json:"external_id"`
	Number      int    `json:"number"`
	Name        string `json:"name"`
	Status      word   `json:"status"`
	Conclusion  word   `json:"conclusion"`
	StartedAt   string `json:"started_at"`
	CompletedAt string `json:"completed_at"`
}

func (s *Server) completeJob(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	var q completion
	if err := readJSON(r, &q); err != nil {
		return runError(err.status, err.Message)
	}
	conclusion, known := q.Conclusion.conclusion()
	if !known {
		return runError(http.StatusBadRequest, fmt.Sprintf("%q is no conclusion of a job.", q.Conclusion))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.runningJobLocked(q.jobRef, token)
	if err != nil {
		return err
	}
	if len(q.StepResults) > 0 {
		steps := make([]StepView, 0, len(q.StepResults))
		for _, result := range q.StepResults {
			steps = append(steps, result.view())
		}
		j.steps = steps
	}
	outputs := make(map[string]string, len(q.Outputs))
	for name, output := range q.Outputs {
		outputs[name] = output.Value
	}
	held := token.runner.session
	s.finishLocked(j, string(conclusion), "", outputs)
	if token.runner.removed && held != nil {
		s.endLaterLocked(token.runner, held)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// endLaterLocked keeps the session of a runner whose registration ended with its one job until the runner deletes it. Its poll is held: a
// listener that learns there, while its worker still ends, that its registration is gone reports the job as canceled.
func (s *Server) endLaterLocked(rn *runner, held *session) {
	rn.ending, rn.endsAt = held.id, s.now().Add(s.opts.SessionAfterJob)
	s.deadlineLocked(rn.endsAt, rn.signal)
}

func (r stepResult) view() StepView {
	conclusion := strings.ToLower(string(r.Conclusion))
	if c, ok := r.Conclusion.conclusion(); ok {
		conclusion = string(c)
	}
	return StepView{
		ID: r.ExternalID, Number: r.Number, Name: r.Name, Status: stepStatus(string(r.Status)), Conclusion: conclusion,
		StartedAt: parseStamp(r.StartedAt), CompletedAt: parseStamp(r.CompletedAt),
	}
}

func stepStatus(status string) string {
	switch strings.ToLower(status) {
	case "completed", "2":
		return jobCompleted
	case "inprogress", "in_progress", "1":
		return jobInProgress
	default:
		return jobQueued
	}
}

func parseStamp(text string) *time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil
	}
	return &t
}
