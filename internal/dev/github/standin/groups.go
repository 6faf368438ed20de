package standin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Who may use a runner group, in GitHub's words.
const (
	visibleToAll      = "all"
	visibleToSelected = "selected"
	visibleToPrivate  = "private"
)

// GroupAccess says which repositories a runner group serves. The zero value is GitHub's for a new group: all but public ones.
type GroupAccess struct {
	// Visibility is "all" (default), "selected" or "private".
	Visibility string `json:"visibility,omitempty"`
	// Repositories are those that are selected, without their owner.
	Repositories []string `json:"repositories,omitempty"`
	// AllowsPublicRepositories: without it no public repository is served, in any visibility.
	AllowsPublicRepositories bool `json:"allows_public_repositories,omitempty"`
}

func (g GroupAccess) visibility() string {
	if g.Visibility == "" {
		return visibleToAll
	}
	return g.Visibility
}

// serves reports whether a job of the repository may have a runner of the group.
func (g GroupAccess) serves(r *repo) bool {
	if r.public && !g.AllowsPublicRepositories {
		return false
	}
	switch g.visibility() {
	case visibleToSelected:
		return slices.ContainsFunc(g.Repositories, func(name string) bool { return strings.EqualFold(name, r.name) })
	case visibleToPrivate:
		return !r.public
	default:
		return true
	}
}

// groupID is the id of the account's group of that name; 0: it has none.
func (a *account) groupID(name string) int64 {
	if strings.EqualFold(name, defaultGroup) {
		return defaultPoolID
	}
	at := slices.IndexFunc(a.groups, func(other string) bool { return strings.EqualFold(name, other) })
	if at < 0 {
		return 0
	}
	return int64(at) + defaultPoolID + 1
}

// setAccess changes which repositories groups of the account serve.
func (a *account) setAccess(access map[string]GroupAccess) error {
	for name, group := range access {
		switch {
		case a.groupID(name) == 0:
			return failf(http.StatusUnprocessableEntity, "there is no runner group %q", name)
		case !slices.Contains([]string{visibleToAll, visibleToSelected, visibleToPrivate}, group.visibility()):
			return failf(http.StatusUnprocessableEntity, "%q is not a runner group's visibility: give all, selected or private", group.Visibility)
		}
		if a.access == nil {
			a.access = map[string]GroupAccess{}
		}
		a.access[strings.ToLower(name)] = group
	}
	return nil
}

// accessTo is the access of the scope's group of that id.
func (sc *scope) accessTo(group int64) GroupAccess {
	return sc.owner.access[strings.ToLower(sc.groupName(group))]
}

// hasGroupFor reports whether a group of that name exists where runners for the repository may be registered.
func (r *repo) hasGroupFor(name string) bool {
	return r.owner.groupID(name) != 0 || r.owner.enterprise != nil && r.owner.enterprise.groupID(name) != 0
}

// mayRun reports whether a runner in the scope's group may run the jobs, as far as their labels allow.
func (sc *scope) mayRun(group int64, jobs *jobGroup) bool {
	if jobs.wants != "" && !strings.EqualFold(jobs.wants, sc.groupName(group)) {
		return false
	}
	if sc.repo != nil { // its runners are in no group that could keep them from it
		return sc.repo == jobs.repo
	}
	return sc.accessTo(group).serves(jobs.repo)
}

type runnerGroupJSON struct {
	ID                       int64    `json:"id"`
	Name                     string   `json:"name"`
	Visibility               string   `json:"visibility"`
	Default                  bool     `json:"default"`
	Inherited                bool     `json:"inherited"`
	AllowsPublicRepositories bool     `json:"allows_public_repositories"`
	RestrictedToWorkflows    bool     `json:"restricted_to_workflows"`
	SelectedWorkflows        []string `json:"selected_workflows"`
	WorkflowsReadOnly        bool     `json:"workflow_restrictions_read_only"`
	RunnersURL               string   `json:"runners_url"`
	SelectedRepositoriesURL  string   `json:"selected_repositories_url,omitempty"`
}

func (s *Server) runnerGroupJSON(sc *scope, id int64) runnerGroupJSON {
	access := sc.accessTo(id)
	at := s.opts.URL + "/orgs/" + sc.path + "/actions/runner-groups/" + strconv.FormatInt(id, 10)
	out := runnerGroupJSON{
		ID: id, Name: sc.groupName(id), Visibility: access.visibility(), Default: id == defaultPoolID,
		AllowsPublicRepositories: access.AllowsPublicRepositories, SelectedWorkflows: []string{}, RunnersURL: at + "/runners",
	}
	if access.visibility() == visibleToSelected {
		out.SelectedRepositoriesURL = at + "/repositories"
	}
	return out
}

// hasGroup reports whether the scope has the group of that id: groups beside Default count from 2, and a repository has none.
func (sc *scope) hasGroup(id int64) bool {
	return id == defaultPoolID || sc.repo == nil && id > defaultPoolID && id <= defaultPoolID+int64(len(sc.owner.groups))
}

// listRunnerGroups lists the groups of an organization or an enterprise. A repository has the default one, which GitHub shows to a runner
// that registers there.
func (s *Server) listRunnerGroups(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc, err := s.scopeLocked(r, who)
	if err != nil {
		return err
	}
	if sc.repo != nil && who.registration == nil {
		return notFound()
	}
	groups := []runnerGroupJSON{s.runnerGroupJSON(sc, defaultPoolID)}
	if sc.repo == nil {
		for i := range sc.owner.groups {
			groups = append(groups, s.runnerGroupJSON(sc, int64(i)+defaultPoolID+1))
		}
	}
	if name := r.URL.Query().Get("visible_to_repository"); name != "" && sc.repo == nil {
		visible := sc.owner.repos[strings.ToLower(name)]
		groups = slices.DeleteFunc(groups, func(g runnerGroupJSON) bool { return visible == nil || !sc.accessTo(g.ID).serves(visible) })
	}
	writeJSON(w, http.StatusOK, map[string]any{"total_count": len(groups), "runner_groups": page(w, r, s.opts.URL, groups)})
	return nil
}

// groupLocked is the group that a path names.
func (s *Server) groupLocked(r *http.Request, who caller) (*scope, int64, error) {
	sc, err := s.scopeLocked(r, who)
	if err != nil {
		return nil, 0, err
	}
	id, err := strconv.ParseInt(r.PathValue("group"), 10, 64)
	if err != nil || sc.repo != nil || !sc.hasGroup(id) {
		return nil, 0, notFound()
	}
	return sc, id, nil
}

func (s *Server) getRunnerGroup(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc, id, err := s.groupLocked(r, who)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.runnerGroupJSON(sc, id))
	return nil
}

// listGroupRepositories lists the repositories that are selected for a group.
func (s *Server) listGroupRepositories(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc, id, err := s.groupLocked(r, who)
	if err != nil {
		return err
	}
	selected := []*repoJSON{}
	for _, rp := range sortedRepos(sc.owner) {
		if access := sc.accessTo(id); access.visibility() == visibleToSelected && access.serves(rp) {
			selected = append(selected, s.repoJSON(rp))
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"total_count": len(selected), "repositories": page(w, r, s.opts.URL, selected)})
	return nil
}
