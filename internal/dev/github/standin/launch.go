package standin

import (
	"fmt"
	"net/http"
)

// resolveActions answers a runner that asks for the download URLs of a job's actions: the stand-in has none, since it accepts no workflow
// that uses one.
func (s *Server) resolveActions(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	var q struct {
		Actions []struct {
			Action  string `json:"action"`
			Version string `json:"version"`
			Path    string `json:"path"`
		} `json:"actions"`
	}
	if err := readJSON(r, &q); err != nil {
		return err
	}
	s.mu.Lock()
	_, err := s.runningJobLocked(jobRef{PlanID: r.PathValue("plan"), JobID: r.PathValue("job")}, token)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	type failure struct {
		Message string `json:"message"`
	}
	failures := map[string]failure{}
	for _, one := range q.Actions {
		name := one.Action + "@" + one.Version
		failures[name] = failure{fmt.Sprintf("Unable to resolve action `%s`: this GitHub is a stand-in and has no actions", name)}
	}
	writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"errors": failures})
	return nil
}
