package standin

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The results service: signed addresses for logs and summaries, blobs, and step updates.

func (s *Server) resultsRoutes(mux *http.ServeMux) {
	receiver := "POST " + pathResults + "/twirp/results.services.receiver.Receiver/"
	s.protocol(mux, receiver+"GetStepLogsSignedBlobURL", s.signBlob("logs_url", "step"))
	s.protocol(mux, receiver+"GetJobLogsSignedBlobURL", s.signBlob("logs_url", "job"))
	s.protocol(mux, receiver+"GetStepSummarySignedBlobURL", s.signBlob("summary_url", "summary"))
	s.protocol(mux, receiver+"GetJobDiagLogsSignedBlobURL", s.signBlob("diag_logs_url", "diag"))
	for _, call := range []string{"CreateStepLogsMetadata", "CreateJobLogsMetadata", "CreateStepSummaryMetadata"} {
		s.protocol(mux, receiver+call, s.acceptMetadata)
	}
	s.protocol(mux, "POST "+pathResults+"/twirp/github.actions.results.api.v1.WorkflowStepUpdateService/WorkflowStepsUpdate", s.updateSteps)
	mux.HandleFunc("PUT "+pathResults+"/blobs/{blob}", s.putBlob)
	s.protocol(mux, "GET "+pathFeed, s.feed)
}

type blobRequest struct {
	JobID  string `json:"workflow_job_run_backend_id"`
	RunID  string `json:"workflow_run_backend_id"`
	StepID string `json:"step_backend_id"`
}

// resultsJobLocked finds the job of a results call. A job that has ended still takes the rest of its log.
func (s *Server) resultsJobLocked(q blobRequest, token *runnerToken) (*job, error) {
	j := s.guids[strings.ToLower(q.JobID)]
	if j == nil || !slices.Contains(j.acquirers, token.runner.name) {
		return nil, failf(http.StatusNotFound, "There is no such job, or it is not this runner's.")
	}
	return j, nil
}

func (s *Server) signBlob(field, kind string) func(http.ResponseWriter, *http.Request, *runnerToken) error {
	return func(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
		var q blobRequest
		if err := readJSON(r, &q); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		j, err := s.resultsJobLocked(q, token)
		if err != nil {
			return err
		}
		id := blobID(j.id, kind, q.StepID)
		address := fmt.Sprintf("%s%s/blobs/%s?sig=%s", s.opts.URL, pathResults, id, s.blobs.sign(id, s.token))
		writeJSON(w, http.StatusOK, map[string]string{
			field: address, "blob_storage_type": "BLOB_STORAGE_TYPE_AZURE", "soft_size_limit": strconv.Itoa(s.opts.LogLimit),
		})
		return nil
	}
}

func blobID(jobID int64, kind, stepID string) string {
	clean := strings.Map(func(c rune) rune {
		if c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' {
			return c
		}
		return -1
	}, strings.ToLower(stepID))
	return fmt.Sprintf("%d-%s-%.64s", jobID, kind, clean)
}

func (s *Server) acceptMetadata(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	var q blobRequest
	if err := readJSON(r, &q); err != nil {
		return err
	}
	s.mu.Lock()
	_, err := s.resultsJobLocked(q, token)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]bool{"ok": true})
	return nil
}

func (s *Server) updateSteps(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	var q struct {
		blobRequest
		Steps []struct {
			stepResult
			Status     int `json:"status"`
			Conclusion int `json:"conclusion"`
		} `json:"steps"`
	}
	if err := readJSON(r, &q); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.resultsJobLocked(q.blobRequest, token)
	if err != nil {
		return err
	}
	if j.state == jobInProgress {
		for _, step := range q.Steps {
			view := step.stepResult.view()
			view.Conclusion = numericConclusion(step.Conclusion)
			view.Status = numericStatus(step.Status, view)
			j.putStep(view)
		}
	}
	writeJSON(w, http.StatusOK, map[string]bool{"ok": true})
	return nil
}

// putStep adds or replaces a step, keeping their order.
func (j *job) putStep(step StepView) {
	at := slices.IndexFunc(j.steps, func(have StepView) bool { return have.ID == step.ID && have.Number == step.Number })
	if at >= 0 {
		j.steps[at] = step
		return
	}
	j.steps = append(j.steps, step)
	slices.SortStableFunc(j.steps, func(a, b StepView) int { return a.Number - b.Number })
}

// The results service numbers statuses and conclusions. Two clients number statuses differently (3 is "in progress" for
// the genuine runner and "completed" for another), so a step that has an end has ended.
func numericStatus(n int, step StepView) string {
	switch {
	case n == 6 || step.Conclusion != "" || step.CompletedAt != nil:
		return jobCompleted
	case n == 1 || n == 3:
		return jobInProgress
	default:
		return jobQueued
	}
}

func numericConclusion(n int) string {
	return map[int]string{2: concludedSuccess, 3: concludedFailure, 4: concludedCancelled, 7: concludedSkipped}[n]
}

// blobStore keeps blobs in memory, each up to a limit. Safe for concurrent use; its lock is never held with another's.
type blobStore struct {
	limit int
	mu    sync.Mutex
	blobs map[string]*blob
}

type blob struct {
	signature string
	data      []byte
	dropped   int64
}

func newBlobStore(limit int) *blobStore { return &blobStore{limit: limit, blobs: map[string]*blob{}} }

func (b *blobStore) sign(id string, token func(string) string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.blobs[id]
	if entry == nil {
		entry = &blob{signature: token("")}
		b.blobs[id] = entry
	}
	return entry.signature
}

// text returns a blob, with a last line when something of it was dropped.
func (b *blobStore) text(id string) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.blobs[id]
	if entry == nil || (len(entry.data) == 0 && entry.dropped == 0) {
		return "", false
	}
	text := string(entry.data)
	if entry.dropped > 0 {
		text += fmt.Sprintf("\n[%d more bytes were dropped: a log is kept up to %d bytes]\n", entry.dropped, b.limit)
	}
	return text, true
}

func (s *Server) putBlob(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s.blobs.mu.Lock()
	entry := s.blobs.blobs[r.PathValue("blob")]
	known := entry != nil && query.Get("sig") == entry.signature
	s.blobs.mu.Unlock()
	if !known {
		writeError(w, failf(http.StatusForbidden, "The blob's address is not one that was given out."))
		return
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, int64(s.opts.LogLimit)+1))
	if err != nil {
		writeError(w, failf(http.StatusBadRequest, "The blob could not be read: send it again."))
		return
	}
	rest, _ := io.Copy(io.Discard, io.LimitReader(r.Body, 1<<30))
	s.blobs.mu.Lock()
	if query.Get("comp") != "appendblock" {
		entry.data, entry.dropped = nil, 0
	}
	room := max(0, s.opts.LogLimit-len(entry.data))
	keep := min(room, len(data))
	entry.data = append(entry.data, data[:keep]...)
	entry.dropped += int64(len(data)-keep) + rest
	s.blobs.mu.Unlock()
	s.markDirty()
	w.WriteHeader(http.StatusCreated)
}

// jobLog is the job's log: what the runner uploaded as a whole, else its steps' logs in order.
func (s *Server) jobLog(id int64, steps []StepView) (string, bool) {
	if text, ok := s.blobs.text(blobID(id, "job", "")); ok {
		return text, true
	}
	var all strings.Builder
	for _, step := range steps {
		if text, ok := s.blobs.text(blobID(id, "step", step.ID)); ok {
			all.WriteString(text)
		}
	}
	return all.String(), all.Len() > 0
}
