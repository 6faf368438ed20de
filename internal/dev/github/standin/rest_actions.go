package standin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (s *Server) actionsRoutes(mux *http.ServeMux) {
	for _, base := range []string{"/repos/{login}/{repo}/actions", byIDPath + "/actions"} {
		s.rest(mux, "GET "+base+"/jobs/{id}", bucketCore, authInstallation, s.getJob)
		s.rest(mux, "GET "+base+"/jobs/{id}/logs", bucketCore, authInstallation, s.getJobLogs)
		s.rest(mux, "GET "+base+"/runs", bucketCore, authInstallation, s.listRuns)
		s.rest(mux, "GET "+base+"/runs/{id}", bucketCore, authInstallation, s.getRun)
		s.rest(mux, "GET "+base+"/runs/{id}/jobs", bucketCore, authInstallation, s.listRunJobs)
		s.rest(mux, "GET "+base+"/runs/{id}/attempts/{attempt}/jobs", bucketCore, authInstallation, s.listRunJobs)
		s.rest(mux, "POST "+base+"/runs/{id}/cancel", bucketCore, authInstallation, s.cancelRun)
		s.rest(mux, "POST "+base+"/runs/{id}/force-cancel", bucketCore, authInstallation, s.cancelRun) // always() keeps no job going here
		s.rerunRoutes(mux, base)
	}
	mux.HandleFunc("GET "+pathResults+"/logs/{id}", s.serveJobLog)
}

func (s *Server) callerRepoLocked(r *http.Request, who caller) (*repo, error) {
	sc, err := s.scopeLocked(r, who)
	if err != nil {
		return nil, err
	}
	return sc.repo, nil
}

func (s *Server) pathJobLocked(r *http.Request, who caller) (*job, error) {
	rp, err := s.callerRepoLocked(r, who)
	if err != nil {
		return nil, err
	}
	id, bad := pathID(r, "id")
	if bad != nil {
		return nil, bad
	}
	if j := s.jobs[id]; j != nil && j.run.repo == rp {
		return j, nil
	}
	return nil, notFound()
}

func (s *Server) pathRunLocked(r *http.Request, who caller) (*run, error) {
	rp, err := s.callerRepoLocked(r, who)
	if err != nil {
		return nil, err
	}
	id, bad := pathID(r, "id")
	if bad != nil {
		return nil, bad
	}
	if found := s.runs[id]; found != nil && found.repo == rp {
		return found, nil
	}
	return nil, notFound()
}

func (s *Server) getJob(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.pathJobLocked(r, who)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.jobJSONLocked(j))
	return nil
}

// getJobLogs redirects to a signed address; a job without a log is not found.
func (s *Server) getJobLogs(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	j, err := s.pathJobLocked(r, who)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	id, steps := j.id, slices.Clone(j.steps)
	s.mu.Unlock()
	if _, ok := s.jobLog(id, steps); !ok {
		return notFound()
	}
	w.Header().Set("Location", fmt.Sprintf("%s%s/logs/%d?sig=%s", s.opts.URL, pathResults, id, s.blobs.sign(blobID(id, "log", ""), s.token)))
	w.WriteHeader(http.StatusFound)
	return nil
}

func (s *Server) serveJobLog(w http.ResponseWriter, r *http.Request) {
	id, bad := pathID(r, "id")
	if bad != nil {
		writeError(w, bad)
		return
	}
	if r.URL.Query().Get("sig") != s.blobs.sign(blobID(id, "log", ""), s.token) {
		writeError(w, failf(http.StatusForbidden, "The log's address is not one that was given out."))
		return
	}
	s.mu.Lock()
	var steps []StepView
	if j := s.jobs[id]; j != nil {
		steps = slices.Clone(j.steps)
	}
	s.mu.Unlock()
	text, _ := s.jobLog(id, steps)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text))
}

// createdWithin reads GitHub's filter of dates: >=T, >T, <=T, <T, T..T with * for an open end, or a day.
func createdWithin(text string) (func(time.Time) bool, *apiError) {
	if text == "" {
		return func(time.Time) bool { return true }, nil
	}
	from, to, ranged := strings.Cut(text, "..")
	if !ranged {
		switch bound := strings.TrimLeft(text, "<>="); {
		case strings.HasPrefix(text, ">"):
			from, to = bound, "*"
		case strings.HasPrefix(text, "<"):
			from, to = "*", bound
		default:
			from, to = text, text
		}
	}
	first, last := time.Time{}, time.Time{}
	var bad bool
	if from != "*" {
		if first, bad = dateOf(from, 0); bad {
			return nil, failf(http.StatusUnprocessableEntity, "%q is not a date or a range of dates: write created=>=2026-01-31T12:00:00Z", text)
		}
	}
	if to != "*" {
		if last, bad = dateOf(to, 24*time.Hour); bad {
			return nil, failf(http.StatusUnprocessableEntity, "%q is not a date or a range of dates: write created=>=2026-01-31T12:00:00Z", text)
		}
	}
	return func(t time.Time) bool {
		t = t.Truncate(time.Second)
		return !t.Before(first) && (last.IsZero() || !t.After(last))
	}, nil
}

// dateOf reads a moment, or a day to which length is added: its end.
func dateOf(text string, length time.Duration) (at time.Time, bad bool) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, false
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return time.Time{}, true
	}
	if length > 0 {
		day = day.Add(length - time.Second)
	}
	return day, false
}

// listRuns filters by status or conclusion, newest first.
func (s *Server) listRuns(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rp, err := s.callerRepoLocked(r, who)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	want, event, branch := query.Get("status"), query.Get("event"), query.Get("branch")
	within, bad := createdWithin(query.Get("created"))
	if bad != nil {
		return bad
	}
	var found []*run
	for _, candidate := range slices.Backward(s.runOrder) {
		if candidate.repo != rp || (event != "" && candidate.event != event) || (branch != "" && candidate.branch != branch) || !within(candidate.createdAt) {
			continue
		}
		if want == "" || candidate.status() == want || candidate.conclusion == want {
			found = append(found, candidate)
		}
	}
	out := []map[string]any{}
	for _, one := range page(w, r, s.opts.URL, found) {
		out = append(out, s.runMembers(one))
	}
	writeJSON(w, http.StatusOK, map[string]any{"total_count": len(found), "workflow_runs": out})
	return nil
}

func (s *Server) getRun(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.pathRunLocked(r, who)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.runMembers(found))
	return nil
}

func (s *Server) listRunJobs(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.pathRunLocked(r, who)
	if err != nil {
		return err
	}
	listed := found.attemptJobs(0)
	if r.URL.Query().Get("filter") == "all" {
		listed = found.jobs
	}
	if text := r.PathValue("attempt"); text != "" {
		attempt, err := strconv.Atoi(text)
		if err != nil || attempt < 1 || attempt > found.attempt {
			return notFound()
		}
		listed = found.attemptJobs(attempt)
	}
	out := []jobJSON{}
	for _, j := range page(w, r, s.opts.URL, listed) {
		out = append(out, s.jobJSONLocked(j))
	}
	writeJSON(w, http.StatusOK, map[string]any{"total_count": len(listed), "jobs": out})
	return nil
}

func (s *Server) cancelRun(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	found, err := s.pathRunLocked(r, who)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.CancelRun(found.id); err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, struct{}{})
	return nil
}

// statusMatches compares a job with the admin API's filter: a status or a conclusion.
func statusMatches(j *job, want string) bool {
	return want == "" || strings.EqualFold(j.visible(), want) || strings.EqualFold(j.conclusion, want)
}
