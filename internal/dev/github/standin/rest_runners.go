package standin

import (
	"net/http"
	"slices"
	"strings"
)

const (
	maxRunnerName = 64
	maxLabels     = 100
	maxLabel      = 256
)

type labelJSON struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
	Type string `json:"type"`
}

type runnerJSON struct {
	ID            int64       `json:"id"`
	RunnerGroupID int64       `json:"runner_group_id"`
	Name          string      `json:"name"`
	OS            string      `json:"os"`
	Status        string      `json:"status"`
	Busy          bool        `json:"busy"`
	Ephemeral     bool        `json:"ephemeral"`
	Labels        []labelJSON `json:"labels"`
}

func (s *Server) runnerJSONLocked(rn *runner) runnerJSON {
	out := runnerJSON{
		ID: rn.id, RunnerGroupID: rn.groupID, Name: rn.name, OS: rn.os, Status: "offline", Ephemeral: !rn.static,
		Busy:   rn.job != nil && !s.now().Before(rn.busyHiddenUntil),
		Labels: make([]labelJSON, 0, len(rn.labels.names)),
	}
	if rn.online(s.now(), s.opts.OfflineAfter) {
		out.Status = "online"
	}
	for i, name := range rn.labels.names {
		kind := "custom"
		if strings.EqualFold(name, "self-hosted") || slices.Contains(rn.system, name) {
			kind = "read-only"
		}
		out.Labels = append(out.Labels, labelJSON{ID: int64(i + 1), Name: name, Type: kind})
	}
	return out
}

func (s *Server) runnerRoutes(mux *http.ServeMux) {
	for _, base := range []string{"/orgs/{login}", "/repos/{login}/{repo}", byIDPath, "/enterprises/{enterprise}"} {
		s.rest(mux, "GET "+base+"/actions/runner-groups", bucketCore, authAnyToken, s.listRunnerGroups)
		if base == "/orgs/{login}" {
			s.rest(mux, "GET "+base+"/actions/runner-groups/{group}", bucketCore, authAnyToken, s.getRunnerGroup)
			s.rest(mux, "GET "+base+"/actions/runner-groups/{group}/repositories", bucketCore, authAnyToken, s.listGroupRepositories)
		}
		base += "/actions/runners"
		s.rest(mux, "POST "+base+"/generate-jitconfig", bucketRegistration, authInstallation, s.generateJIT)
		s.rest(mux, "POST "+base+"/registration-token", bucketRegistration, authInstallation, s.createRegistrationToken)
		s.rest(mux, "POST "+base+"/remove-token", bucketRegistration, authInstallation, s.createRemovalToken)
		s.rest(mux, "GET "+base, bucketCore, authAnyToken, s.listRunners)
		s.rest(mux, "GET "+base+"/{id}", bucketCore, authInstallation, s.getRunner)
		s.rest(mux, "GET "+base+"/{id}/labels", bucketCore, authInstallation, s.listRunnerLabels)
		s.rest(mux, "DELETE "+base+"/{id}", bucketCore, authAnyToken, s.deleteRunner)
	}
}

// scopeLocked finds the scope a path names. For another account's scope GitHub answers that it does not
// exist.
func (s *Server) scopeLocked(r *http.Request, who caller) (*scope, error) {
	sc, err := s.anyScopeLocked(r, who)
	switch {
	case err != nil:
		return nil, err
	case who.registration != nil && sc != who.registration.scope:
		return nil, notFound()
	case who.person != nil && who.person.Powerless && strings.Contains(r.Pattern, "/actions/runner"):
		return nil, failf(http.StatusForbidden, "Resource not accessible by personal access token")
	}
	return sc, nil
}

func (s *Server) anyScopeLocked(r *http.Request, who caller) (*scope, error) {
	if slug := r.PathValue("enterprise"); slug != "" {
		if who.installation() != 0 {
			return nil, failf(http.StatusForbidden, "Resource not accessible by integration")
		}
		if who.account == nil || !strings.EqualFold(who.account.login, enterpriseLogin(slug)) {
			return nil, notFound()
		}
		return who.account.scope, nil
	}
	if who.account == nil {
		return nil, notFound()
	}
	if r.PathValue("repo_id") != "" {
		rp, err := repoByIDLocked(r, who)
		if err != nil {
			return nil, err
		}
		return rp.scope, nil
	}
	if !strings.EqualFold(r.PathValue("login"), who.account.login) {
		return nil, notFound()
	}
	name := r.PathValue("repo")
	if name == "" {
		if who.account.scope == nil {
			return nil, notFound()
		}
		return who.account.scope, nil
	}
	rp := who.account.repos[strings.ToLower(name)]
	if rp == nil {
		if moved := movedLocked(r, who.account, name); moved != nil {
			return nil, moved
		}
		return nil, notFound()
	}
	return rp.scope, nil
}

type jitRequest struct {
	Name          string   `json:"name"`
	RunnerGroupID *int64   `json:"runner_group_id"`
	Labels        []string `json:"labels"`
	WorkFolder    string   `json:"work_folder"`
}

func unprocessable(message string) *apiError {
	return &apiError{
		status: http.StatusUnprocessableEntity, Message: "Validation Failed: " + message, Errors: []string{message},
		DocumentationURL: docsRoot + "/rest/actions/self-hosted-runners",
	}
}

func (q *jitRequest) validate() error {
	switch {
	case q.Name == "":
		return unprocessable("name is missing")
	case len(q.Name) > maxRunnerName:
		return unprocessable("name is too long (at most 64 characters)")
	case strings.ContainsFunc(q.Name, func(c rune) bool { return c < ' ' || strings.ContainsRune(`"/\[]:|<>+=;,?*@`, c) }):
		return unprocessable("name holds a character that a runner's name may not hold")
	case q.RunnerGroupID == nil || *q.RunnerGroupID <= 0:
		return unprocessable("runner_group_id is missing")
	case len(q.Labels) == 0 || len(q.Labels) > maxLabels:
		return unprocessable("between 1 and 100 labels are needed")
	}
	for _, label := range q.Labels {
		if label == "" || len(label) > maxLabel || strings.ContainsAny(label, ",\n\r") {
			return unprocessable("a label is empty, too long, or holds a comma")
		}
	}
	return nil
}

func (s *Server) generateJIT(w http.ResponseWriter, r *http.Request, who caller) error {
	var q jitRequest
	if err := readJSON(r, &q); err != nil {
		return err
	}
	if err := q.validate(); err != nil {
		return err
	}
	key, err := s.keys.take()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sc, err := s.scopeLocked(r, who)
	if err != nil {
		return err
	}
	if !sc.hasGroup(*q.RunnerGroupID) {
		return notFound()
	}
	if sc.byName[strings.ToLower(q.Name)] != nil {
		return &apiError{
			status: http.StatusConflict, Message: "Already exists - A runner with the name " + q.Name + " already exists.",
			DocumentationURL: docsRoot + "/rest/actions/self-hosted-runners",
		}
	}
	if q.WorkFolder == "" {
		q.WorkFolder = "_work"
	}
	rn := &runner{
		id: s.nextIDLocked("runner", 20_000), name: q.Name, scope: sc, labels: newLabelSet(q.Labels), groupID: *q.RunnerGroupID,
		os: "unknown", workFolder: q.WorkFolder, clientID: s.guid(), key: key.public, createdAt: s.now(), wake: make(chan struct{}),
	}
	blob, err := s.jitBlob(rn, key)
	if err != nil {
		return err
	}
	sc.insert(rn)
	s.runners[rn.id], s.clients[rn.clientID] = rn, rn
	s.minted++
	s.intendLocked(rn)
	s.watchCleanupLocked(rn)
	s.changedLocked()
	writeJSON(w, http.StatusCreated, map[string]any{"runner": s.runnerJSONLocked(rn), "encoded_jit_config": blob})
	return nil
}

// listRunners lists a scope's runners by id, and takes name for a whole one. GitHub documents neither the order of the list
// nor whether its filter accepts a prefix, so clients may rely only on a whole name finding its runner.
func (s *Server) listRunners(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc, err := s.scopeLocked(r, who)
	if err != nil {
		return err
	}
	listed := sc.ordered
	if name := r.URL.Query().Get("name"); name != "" {
		listed = nil
		if rn := sc.byName[strings.ToLower(name)]; rn != nil {
			listed = []*runner{rn}
		}
	}
	out := []runnerJSON{}
	for _, rn := range page(w, r, s.opts.URL, listed) {
		out = append(out, s.runnerJSONLocked(rn))
	}
	writeJSON(w, http.StatusOK, map[string]any{"total_count": len(listed), "runners": out})
	return nil
}

func (s *Server) pathRunnerLocked(r *http.Request, who caller) (*runner, error) {
	sc, err := s.scopeLocked(r, who)
	if err != nil {
		return nil, err
	}
	id, bad := pathID(r, "id")
	if bad != nil {
		return nil, bad
	}
	rn := s.runners[id]
	if rn == nil || rn.scope != sc {
		return nil, notFound()
	}
	return rn, nil
}

func (s *Server) getRunner(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rn, err := s.pathRunnerLocked(r, who)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.runnerJSONLocked(rn))
	return nil
}

func (s *Server) listRunnerLabels(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rn, err := s.pathRunnerLocked(r, who)
	if err != nil {
		return err
	}
	labels := s.runnerJSONLocked(rn).Labels
	writeJSON(w, http.StatusOK, map[string]any{"total_count": len(labels), "labels": labels})
	return nil
}

// deleteRunner removes a registration. A runner that has a job, even one it has not acquired yet, is refused: after a
// removal that was granted, no job starts on it.
func (s *Server) deleteRunner(w http.ResponseWriter, r *http.Request, who caller) error {
	if who.registration != nil && !who.registration.remove {
		return badCredentials()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rn, err := s.pathRunnerLocked(r, who)
	if err != nil {
		return err
	}
	_, refused := s.faults.take(FaultRemoveRefused, runnerSubjectLocked(rn))
	if rn.job != nil && !refused {
		_, allowed := s.faults.take(FaultRemoveBusy, runnerSubjectLocked(rn))
		refused = !allowed
	}
	if refused {
		return &apiError{
			status:           http.StatusUnprocessableEntity,
			Message:          "Bad request - Runner \"" + rn.name + "\" is still running a job\"",
			DocumentationURL: docsRoot + "/rest/actions/self-hosted-runners#delete-a-self-hosted-runner-from-an-organization",
		}
	}
	s.removeRunnerLocked(rn, removedBy(who))
	w.WriteHeader(http.StatusNoContent)
	return nil
}
