package standin

import (
	"fmt"
	"net/http"
	"strings"
)

// A repository keeps its id under every name, and is read by it (GET /repositories/{id}). A call by a former name is
// redirected there, by 301 for a GET and 307 for anything else, until another repository has that name: then the name
// means the other one. GitHub documents this in its notes on redirects of the REST API
// (developer.github.com/changes/2015-04-17-preview-repository-redirects, docs.github.com "Renaming a repository").

// byIDPath is how a path begins that names a repository by its id.
const byIDPath = "/repositories/{repo_id}"

// rest paths of a repository by its id: what redirections lead to.
func (s *Server) repositoryRoutes(mux *http.ServeMux) {
	s.rest(mux, "GET "+byIDPath, bucketCore, authInstallation, s.getRepository)
	s.rest(mux, "GET /repos/{login}/{repo}", bucketCore, authInstallation, s.getRepository)
}

func (s *Server) getRepository(w http.ResponseWriter, r *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rp, err := s.callerRepoLocked(r, who)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.repositoryMembers(rp))
	return nil
}

// repoByIDLocked finds a repository of the caller's installation; of any other GitHub says that it does not exist.
func repoByIDLocked(r *http.Request, who caller) (*repo, error) {
	id, bad := pathID(r, "repo_id")
	if bad != nil {
		return nil, bad
	}
	if who.account == nil {
		return nil, notFound()
	}
	for _, rp := range who.account.repos {
		if rp.id == id {
			return rp, nil
		}
	}
	return nil, notFound()
}

// movedLocked is the answer to a call by a name that a repository had before; nil if none had it.
func movedLocked(r *http.Request, a *account, name string) error {
	id := a.formerly[strings.ToLower(name)]
	if id == 0 {
		return nil
	}
	old := "/repos/" + r.PathValue("login") + "/" + name
	before, after, found := strings.Cut(r.RequestURI, old)
	if !found {
		return nil
	}
	status := http.StatusTemporaryRedirect
	if r.Method == http.MethodGet {
		status = http.StatusMovedPermanently
	}
	return &apiError{
		status: status, Message: "Moved Permanently", DocumentationURL: docsRoot + "/rest/guides/best-practices-for-using-the-rest-api",
		location: fmt.Sprintf("%s/repositories/%d%s", before, id, after),
	}
}

// RenameRepository gives a repository ("owner/name") another name, without its owner. It sends no event: the App is not
// subscribed to it. Its runs, jobs and runners stay its own.
func (s *Server) RenameRepository(repository, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rp, err := s.repoLocked(repository)
	if err != nil {
		return err
	}
	a, was := rp.owner, strings.ToLower(rp.name)
	if !validName(name) || a.repos[strings.ToLower(name)] != nil {
		return failf(http.StatusUnprocessableEntity, "%q is no name that the repository could have: it is not usable, or taken", name)
	}
	delete(a.repos, was)
	delete(a.formerly, strings.ToLower(name))
	rp.name = name
	rp.scope.path = rp.fullName()
	a.repos[strings.ToLower(name)] = rp
	if a.formerly == nil {
		a.formerly = map[string]int64{}
	}
	a.formerly[was] = rp.id
	s.changedLocked()
	return nil
}

func (s *Server) adminRenameRepository(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Name string `json:"name"`
	}
	if err := readJSON(r, &q); err != nil {
		return err
	}
	if err := s.RenameRepository(r.PathValue("owner")+"/"+r.PathValue("repo"), q.Name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
