package standin

import (
	"crypto/subtle"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DeliveryView is a webhook delivery as the admin API shows it.
type DeliveryView struct {
	ID          int64           `json:"id"`
	GUID        string          `json:"guid"`
	Event       string          `json:"event"`
	Action      string          `json:"action"`
	Job         string          `json:"job,omitempty"`
	JobID       int64           `json:"job_id,omitempty"`
	DeliveredAt time.Time       `json:"delivered_at"`
	Redelivery  bool            `json:"redelivery"`
	StatusCode  int             `json:"status_code"`
	Status      string          `json:"status"`
	Payload     json.RawMessage `json:"payload,omitempty"`
}

func (s *Server) adminRoutes(mux *http.ServeMux) {
	admin := func(pattern string, handle func(http.ResponseWriter, *http.Request) error) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /_standin"+path, func(w http.ResponseWriter, r *http.Request) {
			if want := s.opts.AdminToken; want != "" && subtle.ConstantTimeCompare([]byte(bearer(r)), []byte(want)) != 1 {
				writeError(w, failf(http.StatusUnauthorized, "the admin API needs its token: send it as a bearer token"))
				return
			}
			if err := handle(w, r); err != nil {
				writeError(w, err)
			}
		})
	}
	admin("GET /state", s.adminState)
	admin("POST /workflows", s.adminSubmit)
	admin("GET /runs", s.adminRuns)
	admin("GET /runs/{id}", s.adminRun)
	admin("POST /runs/{id}/cancel", s.adminByID(s.CancelRun))
	admin("POST /runs/{id}/approve", s.adminByID(s.ApproveRun))
	admin("GET /jobs", s.adminJobs)
	admin("GET /jobs/{id}", s.adminJob)
	admin("GET /jobs/{id}/log", s.adminJobLog)
	admin("GET /jobs/{id}/steps", s.adminJobSteps)
	admin("POST /jobs/{id}/cancel", s.adminByID(s.CancelJob))
	admin("POST /jobs/{id}/lose", s.adminByID(s.LoseJob))
	admin("GET /runners", s.adminRunners)
	admin("GET /deliveries", s.adminDeliveries)
	admin("GET /ledger", s.adminLedger)
	admin("GET /stats", s.adminStats)
	admin("DELETE /stats", s.adminResetStats)
	admin("GET /faults", s.adminFaults)
	admin("POST /faults", s.adminAddFault)
	admin("DELETE /faults", s.adminRemoveFaults)
	admin("DELETE /faults/{id}", s.adminRemoveFaults)
	admin("GET /installations", s.adminInstallations)
	admin("POST /installations", s.adminInstall)
	admin("POST /enterprises", s.adminAddEnterprise)
	admin("POST /tokens", s.adminAddToken)
	admin("DELETE /tokens/{name}", s.adminRevokeToken)
	admin("POST /repositories/{owner}/{repo}/rename", s.adminRenameRepository)
	admin("POST /installations/{id}/announce", s.adminAnnounce)
	admin("POST /installations/{id}/suspend", s.adminByID(s.Suspend))
	admin("POST /installations/{id}/unsuspend", s.adminByID(s.Unsuspend))
	admin("DELETE /installations/{id}", s.adminByID(s.Uninstall))
	admin("PUT /webhook", s.adminWebhook)
}

// State sums up jobs and runners.
func (s *Server) State() StateView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := StateView{
		Runs: len(s.runOrder), Jobs: map[string]int{}, Conclusions: map[string]int{},
		Lost: s.lost, Requeued: s.requeued, Runners: len(s.runners), AcquiredTwice: []int64{},
	}
	for _, r := range s.runOrder {
		if r.conclusion != "" {
			v.RunsCompleted++
		}
	}
	for _, j := range s.jobOrder {
		v.Jobs[j.visible()]++
		if j.conclusion != "" {
			v.Conclusions[j.conclusion]++
		}
		if j.acquisitions > 1 {
			v.AcquiredTwice = append(v.AcquiredTwice, j.id)
		}
	}
	for _, rn := range s.runners {
		if rn.job != nil {
			v.Busy++
		}
		if rn.online(s.now(), s.opts.OfflineAfter) {
			v.Online++
		}
	}
	return v
}

// Stats returns the counters a benchmark reads.
func (s *Server) Stats() StatsView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := StatsView{Routes: map[string]RouteCalls{}, Minted: s.minted}
	for route, c := range s.calls {
		copied := RouteCalls{Calls: c.Calls, ByStatus: map[int]int{}}
		for status, n := range c.ByStatus {
			copied.ByStatus[status] = n
		}
		v.Routes[route] = copied
		v.Calls += c.Calls
	}
	v.Deliveries, v.FailedDeliveries = s.hooks.counts()
	return v
}

// Jobs returns every job in the order in which they appeared.
func (s *Server) Jobs() []JobView {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]JobView, 0, len(s.jobOrder))
	for _, j := range s.jobOrder {
		out = append(out, j.view())
	}
	return out
}

// Runners returns every registration, by id.
func (s *Server) Runners() []RunnerView {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]RunnerView, 0, len(s.runners))
	for _, rn := range s.runners {
		out = append(out, s.runnerViewLocked(rn))
	}
	slices.SortFunc(out, func(a, b RunnerView) int { return int(a.ID - b.ID) })
	return out
}

func (s *Server) adminState(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, s.State())
	return nil
}

// adminSubmit takes JSON, or a form whose part "file" is the workflow and whose other fields are the submission's.
func (s *Server) adminSubmit(w http.ResponseWriter, r *http.Request) error {
	var sub Submission
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "multipart/form-data" {
		if err := readSubmissionForm(r, &sub); err != nil {
			return err
		}
	} else if err := readJSON(r, &sub); err != nil {
		return err
	}
	runs, err := s.Submit(sub)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, map[string]any{"runs": runs})
	return nil
}

func readSubmissionForm(r *http.Request, sub *Submission) error {
	r.Body = http.MaxBytesReader(nil, r.Body, maxBody)
	if err := r.ParseMultipartForm(maxBody); err != nil {
		return failf(http.StatusBadRequest, "the form could not be read: send multipart/form-data with a part named file")
	}
	file, header, err := r.FormFile("file")
	if err != nil {
		return failf(http.StatusBadRequest, "the form has no file: send the workflow as a part named file")
	}
	defer file.Close()
	content, err := io.ReadAll(file)
	if err != nil {
		return failf(http.StatusBadRequest, "the file could not be read: send it again")
	}
	*sub = Submission{
		FileName: header.Filename, Content: string(content), Repo: r.FormValue("repo"), Event: r.FormValue("event"),
		Branch: r.FormValue("branch"), Inputs: map[string]string{}, HoldForApproval: r.FormValue("hold_for_approval") == "true",
	}
	if count := r.FormValue("count"); count != "" {
		if sub.Count, err = strconv.Atoi(count); err != nil {
			return failf(http.StatusBadRequest, "count must be a number, not %q", count)
		}
	}
	if rules := r.FormValue("faults"); rules != "" {
		if err := json.Unmarshal([]byte(rules), &sub.Faults); err != nil {
			return failf(http.StatusBadRequest, "faults must be a JSON list of faults: %v", err)
		}
	}
	for name, values := range r.MultipartForm.Value {
		if input, ok := strings.CutPrefix(name, "input."); ok && len(values) > 0 {
			sub.Inputs[input] = values[0]
		}
	}
	return nil
}

func (s *Server) adminRuns(w http.ResponseWriter, r *http.Request) error {
	repo := r.URL.Query().Get("repo")
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []RunView{}
	for _, one := range s.runOrder {
		if repo == "" || strings.EqualFold(one.repo.fullName(), repo) {
			out = append(out, one.view())
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"runs": out})
	return nil
}

func (s *Server) adminRun(w http.ResponseWriter, r *http.Request) error {
	id, bad := pathID(r, "id")
	if bad != nil {
		return bad
	}
	var over <-chan time.Time
	if text := r.URL.Query().Get("wait"); text != "" {
		wait, err := time.ParseDuration(text)
		if err != nil || wait < 0 || wait > 5*time.Minute {
			return failf(http.StatusBadRequest, "wait must be a duration up to 5m, not %q", text)
		}
		over = s.opts.After(wait)
	}
	for {
		s.mu.Lock()
		found := s.runs[id]
		if found == nil {
			s.mu.Unlock()
			return failf(http.StatusNotFound, "there is no run %d", id)
		}
		view, changed := found.view(), s.changed
		s.mu.Unlock()
		if view.Conclusion != "" || over == nil {
			writeJSON(w, http.StatusOK, view)
			return nil
		}
		select {
		case <-changed:
		case <-over:
			over = nil
		case <-s.closing:
			over = nil
		case <-r.Context().Done():
			return nil
		}
	}
}

func (s *Server) adminByID(act func(int64) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, bad := pathID(r, "id")
		if bad != nil {
			return bad
		}
		if err := act(id); err != nil {
			return err
		}
		writeJSON(w, http.StatusAccepted, struct{}{})
		return nil
	}
}

func (s *Server) adminJobs(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	runID, _ := strconv.ParseInt(query.Get("run_id"), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []JobView{}
	for _, j := range s.jobOrder {
		if (runID == 0 || j.run.id == runID) && statusMatches(j, query.Get("status")) {
			out = append(out, j.view())
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"jobs": out})
	return nil
}

func (s *Server) adminFindJob(r *http.Request) (JobView, error) {
	id, bad := pathID(r, "id")
	if bad != nil {
		return JobView{}, bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[id]; j != nil {
		return j.view(), nil
	}
	return JobView{}, failf(http.StatusNotFound, "there is no job %d", id)
}

func (s *Server) adminJob(w http.ResponseWriter, r *http.Request) error {
	view, err := s.adminFindJob(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, view)
	return nil
}

func (s *Server) adminJobLog(w http.ResponseWriter, r *http.Request) error {
	view, err := s.adminFindJob(r)
	if err != nil {
		return err
	}
	text, ok := s.watchedLog(view.ID, view.Steps)
	if !ok {
		return failf(http.StatusNotFound, "job %d has no log", view.ID)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, text) // the reader may be gone
	return nil
}

func (s *Server) adminRunners(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]any{"runners": s.Runners()})
	return nil
}

func (s *Server) adminDeliveries(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	limit := clampInt(query.Get("limit"), 1000, 1, 1<<30)
	out := []DeliveryView{}
	for _, d := range s.hooks.snapshot(0, limit, nil) {
		view := DeliveryView{
			ID: d.ID, GUID: d.GUID, Event: d.Event, Action: d.Action, Job: d.jobName, JobID: d.jobID,
			DeliveredAt: d.DeliveredAt.UTC(), Redelivery: d.Redelivery, StatusCode: d.StatusCode, Status: d.Status,
		}
		if query.Get("payloads") == "true" {
			view.Payload = d.Payload
		}
		out = append(out, view)
	}
	writeJSON(w, http.StatusOK, map[string]any{"deliveries": out})
	return nil
}

func (s *Server) adminStats(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, s.Stats())
	return nil
}

func (s *Server) adminResetStats(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	s.calls, s.minted = map[string]*RouteCalls{}, 0
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
	return nil
}
