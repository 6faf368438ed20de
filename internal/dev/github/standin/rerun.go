package standin

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// GitHub's bounds of a re-run.
const (
	rerunWithin = 30 * 24 * time.Hour
	maxAttempts = 50
)

// carried is how a job ended that a later attempt of its run does not repeat.
type carried struct {
	Conclusion string            `json:"conclusion"`
	Outputs    map[string]string `json:"outputs,omitempty"`
}

func (s *Server) rerunRoutes(mux *http.ServeMux, base string) {
	s.rest(mux, "POST "+base+"/runs/{id}/rerun", bucketCore, authInstallation, s.rerunAll)
	s.rest(mux, "POST "+base+"/runs/{id}/rerun-failed-jobs", bucketCore, authInstallation, s.rerunFailed)
	s.rest(mux, "POST "+base+"/jobs/{id}/rerun", bucketCore, authInstallation, s.rerunJob)
}

func (s *Server) rerunAll(w http.ResponseWriter, r *http.Request, who caller) error {
	return s.rerunRun(w, r, who, func(*job) bool { return true })
}

func (s *Server) rerunFailed(w http.ResponseWriter, r *http.Request, who caller) error {
	return s.rerunRun(w, r, who, func(j *job) bool {
		return j.conclusion != concludedSuccess && j.conclusion != concludedSkipped
	})
}

func (s *Server) rerunRun(w http.ResponseWriter, r *http.Request, who caller, again func(*job) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.pathRunLocked(r, who)
	if err != nil {
		return err
	}
	return s.rerunLocked(w, found, again)
}

func (s *Server) rerunJob(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.pathJobLocked(r, who)
	if err != nil {
		return err
	}
	if j.run.byKey[j.key] != j {
		return failf(http.StatusForbidden, "The job belongs to an earlier attempt of its run: re-run the latest one.")
	}
	return s.rerunLocked(w, j.run, func(other *job) bool { return other == j })
}

// rerunLocked starts another attempt of a run: the chosen jobs and everything behind them run again, under new ids; the
// others stay as they are.
func (s *Server) rerunLocked(w http.ResponseWriter, r *run, again func(*job) bool) error {
	switch {
	case r.conclusion == "":
		return failf(http.StatusForbidden, "This workflow run is already running")
	case s.now().Sub(r.createdAt) > rerunWithin || r.attempt >= maxAttempts:
		return failf(http.StatusForbidden, "Unable to re-run this workflow run because it was created over a month ago, or too often re-run")
	}
	file, err := workflow.Load(r.fileName, []byte(r.submission.Content))
	if err != nil {
		return err // it was read before
	}
	kept := keptJobs(r, file, again)
	if len(kept) == len(r.byKey) {
		return failf(http.StatusForbidden, "This workflow run has no failed jobs to re-run")
	}
	r.attempt++
	if err := s.planRun(r, file); err != nil {
		r.attempt--
		return err
	}
	r.carried, r.conclusion, r.completedAt, r.startedAt, r.attemptedAt = kept, "", time.Time{}, time.Time{}, s.now()
	s.advanceLocked(r)
	s.changedLocked()
	writeJSON(w, http.StatusCreated, struct{}{})
	return nil
}

// keptJobs are the latest jobs that are neither chosen nor depend on one that is, with their outputs.
func keptJobs(r *run, file *workflow.Workflow, again func(*job) bool) map[string]carried {
	outputs := map[string]map[string]string{}
	for _, step := range r.plan.journal {
		if step.Call == "complete" {
			outputs[step.Key] = step.Outputs
		}
	}
	repeated, behind := map[string]bool{}, map[string]bool{}
	for key, j := range r.byKey {
		if again(j) {
			repeated[key], behind[jobID(key)] = true, true
		}
	}
	spreads := map[string]bool{} // every instance of these jobs runs again
	for range file.Jobs {        // needs cannot be deeper than that
		for _, def := range file.Jobs {
			if slices.ContainsFunc(def.Needs, func(id string) bool { return behind[id] }) {
				behind[def.ID], spreads[def.ID] = true, true
			}
		}
	}
	kept := map[string]carried{}
	for key, j := range r.byKey {
		if !repeated[key] && !spreads[jobID(key)] {
			kept[key] = carried{Conclusion: j.conclusion, Outputs: outputs[key]}
		}
	}
	return kept
}

// jobID is the job of the file that a key belongs to: a matrix adds "/index".
func jobID(key string) string {
	id, _, _ := strings.Cut(key, "/")
	return id
}

// attemptJobs are a run's jobs as one of its attempts shows them: its own, and those it did not repeat. 0: the latest.
func (r *run) attemptJobs(attempt int) []*job {
	latest := map[string]*job{}
	for _, j := range r.jobs {
		if attempt == 0 || j.attempt <= attempt {
			latest[j.key] = j
		}
	}
	return slices.DeleteFunc(slices.Clone(r.jobs), func(j *job) bool { return latest[j.key] != j })
}
