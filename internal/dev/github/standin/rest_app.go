package standin

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

type ownerJSON struct {
	Login string `json:"login"`
	ID    int64  `json:"id"`
	Type  string `json:"type"`
	URL   string `json:"url"`
}

type repoJSON struct {
	ID            int64      `json:"id"`
	Name          string     `json:"name"`
	FullName      string     `json:"full_name"`
	Private       bool       `json:"private"`
	Owner         *ownerJSON `json:"owner,omitempty"`
	HTMLURL       string     `json:"html_url,omitempty"`
	URL           string     `json:"url,omitempty"`
	DefaultBranch string     `json:"default_branch,omitempty"`
}

type installationJSON struct {
	ID                  int64             `json:"id"`
	Account             map[string]any    `json:"account"`
	RepositorySelection string            `json:"repository_selection"`
	AccessTokensURL     string            `json:"access_tokens_url"`
	RepositoriesURL     string            `json:"repositories_url"`
	HTMLURL             string            `json:"html_url"`
	AppID               int64             `json:"app_id"`
	AppSlug             string            `json:"app_slug"`
	TargetID            int64             `json:"target_id"`
	TargetType          string            `json:"target_type"`
	Permissions         map[string]string `json:"permissions"`
	Events              []string          `json:"events"`
	CreatedAt           *string           `json:"created_at"`
	UpdatedAt           *string           `json:"updated_at"`
	SuspendedAt         *string           `json:"suspended_at"`
	SuspendedBy         map[string]any    `json:"suspended_by"`
	SingleFileName      *string           `json:"single_file_name"`
	HasMultipleFiles    bool              `json:"has_multiple_single_files"`
	SingleFilePaths     []string          `json:"single_file_paths"`
}

// appRights are the permissions and events that the App asks for at its installation.
type appRights struct {
	permissions map[string]string
	events      []string
}

func usualRights() *appRights {
	return &appRights{
		permissions: map[string]string{
			"actions": "write", "administration": "write", "metadata": "read", "organization_self_hosted_runners": "write",
		},
		events: []string{"workflow_job"},
	}
}

// SetRights changes the App's permissions and events, as its owner may on its settings page, and as if every account had accepted that. The
// displayed permissions change; refused calls need a fault.
func (s *Server) SetRights(permissions map[string]string, events ...string) {
	s.rights.Store(&appRights{permissions: maps.Clone(permissions), events: append([]string{}, events...)})
}

func (s *Server) ownerJSON(a *account) ownerJSON {
	return ownerJSON{Login: a.login, ID: a.id, Type: a.kind, URL: s.opts.URL + "/users/" + a.login}
}

func (s *Server) repoJSON(r *repo) *repoJSON {
	owner := s.ownerJSON(r.owner)
	return &repoJSON{
		ID: r.id, Name: r.name, FullName: r.fullName(), Owner: &owner, Private: !r.public,
		HTMLURL: s.opts.URL + "/" + r.fullName(), URL: s.opts.URL + "/repos/" + r.fullName(), DefaultBranch: "main",
	}
}

func (s *Server) installationJSON(a *account) installationJSON {
	out := installationJSON{
		ID: a.installation, Account: s.accountMembers(s.ownerJSON(a)), RepositorySelection: "selected",
		AccessTokensURL: fmt.Sprintf("%s/app/installations/%d/access_tokens", s.opts.URL, a.installation),
		RepositoriesURL: s.opts.URL + "/installation/repositories",
		HTMLURL:         fmt.Sprintf("%s/organizations/%s/settings/installations/%d", s.opts.URL, a.login, a.installation),
		AppID:           s.opts.AppID, AppSlug: s.opts.AppSlug, TargetID: a.id, TargetType: a.kind,
		Permissions: s.rights.Load().permissions, Events: s.rights.Load().events,
		CreatedAt: stamp(a.installedAt), UpdatedAt: stamp(a.installedAt), SuspendedAt: stamp(a.suspendedAt), SingleFilePaths: []string{},
	}
	if !a.suspendedAt.IsZero() {
		out.SuspendedBy = s.accountMembers(s.sender())
	}
	return out
}

// installLocked adds an installation, or more repositories to one that exists.
func (s *Server) installLocked(in Installation) (*account, error) {
	if in.Type == "" {
		in.Type = typeOrganization
	}
	if !validName(in.Account) || (in.Type != typeOrganization && in.Type != typeUser) {
		return nil, failf(http.StatusUnprocessableEntity, "the installation %q of type %q is not usable: give an account's login and the type Organization or User", in.Account, in.Type)
	}
	for _, name := range in.Repositories {
		if !validName(name) {
			return nil, failf(http.StatusUnprocessableEntity, "%q is not a repository's name: give it without its owner", name)
		}
	}
	if in.Type == typeUser && len(in.RunnerGroups) > 0 {
		return nil, failf(http.StatusUnprocessableEntity, "%s is a user: runner groups belong to organizations and enterprises", in.Account)
	}
	a := s.accounts[strings.ToLower(in.Account)]
	if a == nil {
		a = &account{login: in.Account, kind: in.Type, repos: map[string]*repo{}, jobGroups: map[string]*jobGroup{}}
	}
	if !a.installed() {
		if in.ID == 0 {
			in.ID = s.nextIDLocked("installation", 5_000_000)
		}
		if s.installations[in.ID] != nil {
			return nil, failf(http.StatusUnprocessableEntity, "the installation id %d is taken by %s", in.ID, s.installations[in.ID].login)
		}
		a.installation, a.installedAt, a.suspendedAt = in.ID, s.now(), time.Time{}
		s.installations[in.ID] = a
		s.installOrder = append(s.installOrder, a)
	}
	if a.id == 0 {
		a.id = s.nextIDLocked("account", 9_000_000)
		if a.kind == typeOrganization {
			a.scope = newScope(a.login, a, nil)
		}
		s.accounts[strings.ToLower(in.Account)] = a
	}
	a.addGroups(in.RunnerGroups)
	if err := a.setAccess(in.GroupAccess); err != nil {
		return nil, err
	}
	for _, name := range in.Repositories {
		if a.repos[strings.ToLower(name)] != nil {
			continue
		}
		r := &repo{id: s.nextIDLocked("repo", 700_000_000), name: name, owner: a, public: slices.ContainsFunc(in.PublicRepositories, func(public string) bool {
			return strings.EqualFold(public, name)
		})}
		r.scope = newScope(r.fullName(), a, r)
		a.repos[strings.ToLower(name)] = r
		delete(a.formerly, strings.ToLower(name)) // the name means this one now
	}
	return a, nil
}

func validName(name string) bool {
	return name != "" && len(name) <= 100 && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c == '-' || c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
	})
}

func sortedRepos(a *account) []*repo {
	out := make([]*repo, 0, len(a.repos))
	for _, r := range a.repos {
		out = append(out, r)
	}
	slices.SortFunc(out, func(x, y *repo) int { return int(x.id - y.id) })
	return out
}

const patternRateLimit = "GET /rate_limit"

func (s *Server) appRoutes(mux *http.ServeMux) {
	s.rest(mux, "GET /app", bucketCore, authApp, s.getApp)
	s.rest(mux, "GET /app/installations", bucketCore, authApp, s.listInstallations)
	s.rest(mux, "GET /app/installations/{id}", bucketCore, authApp, s.getInstallation)
	s.rest(mux, "POST /app/installations/{id}/access_tokens", bucketCore, authApp, s.createToken)
	s.rest(mux, "GET /orgs/{login}/installation", bucketCore, authApp, s.findInstallation)
	s.rest(mux, "GET /users/{login}/installation", bucketCore, authApp, s.findInstallation)
	s.rest(mux, "GET /repos/{login}/{repo}/installation", bucketCore, authApp, s.findInstallation)
	s.rest(mux, "GET /installation/repositories", bucketCore, authInstallation, s.listInstallationRepos)
	s.rest(mux, patternRateLimit, bucketNone, authInstallation, s.getRateLimit)
	s.rest(mux, "GET /app/hook/config", bucketCore, authApp, s.getHookConfig)
	s.rest(mux, "GET /app/hook/deliveries", bucketCore, authApp, s.listDeliveries)
	s.rest(mux, "GET /app/hook/deliveries/{id}", bucketCore, authApp, s.getDelivery)
	s.rest(mux, "POST /app/hook/deliveries/{id}/attempts", bucketCore, authApp, s.redeliver)
}

func (s *Server) getApp(w http.ResponseWriter, _ *http.Request, _ caller) error {
	s.mu.Lock()
	count := len(s.installOrder)
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{
		"id": s.opts.AppID, "node_id": fmt.Sprintf("A_%d", s.opts.AppID), "owner": s.accountMembers(s.sender()), "description": nil,
		"created_at": stamp(s.began), "updated_at": stamp(s.began), "slug": s.opts.AppSlug, "name": s.opts.AppSlug, "permissions": s.rights.Load().permissions,
		"events": s.rights.Load().events, "installations_count": count,
		"html_url": s.opts.URL + "/apps/" + s.opts.AppSlug, "external_url": s.opts.URL,
	})
	return nil
}

func (s *Server) listInstallations(w http.ResponseWriter, r *http.Request, _ caller) error {
	s.mu.Lock()
	all := make([]installationJSON, 0, len(s.installOrder))
	for _, a := range s.installOrder {
		all = append(all, s.installationJSON(a))
	}
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, page(w, r, s.opts.URL, all))
	return nil
}

func (s *Server) getInstallation(w http.ResponseWriter, r *http.Request, _ caller) error {
	a, err := s.pathInstallation(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.installationJSON(a))
	return nil
}

func (s *Server) pathInstallation(r *http.Request) (*account, error) {
	id, bad := pathID(r, "id")
	if bad != nil {
		return nil, bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.installations[id]
	if a == nil {
		return nil, notFound()
	}
	return a, nil
}

func (s *Server) createToken(w http.ResponseWriter, r *http.Request, _ caller) error {
	a, err := s.pathInstallation(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if !a.suspendedAt.IsZero() {
		s.mu.Unlock()
		return suspended()
	}
	value, expires := s.newInstallationTokenLocked(a)
	s.mu.Unlock()
	writeJSON(w, http.StatusCreated, map[string]any{
		"token": value, "expires_at": expires.UTC().Format(time.RFC3339),
		"permissions": s.rights.Load().permissions, "repository_selection": "selected",
	})
	return nil
}

func (s *Server) findInstallation(w http.ResponseWriter, r *http.Request, _ caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[strings.ToLower(r.PathValue("login"))]
	if a == nil || !a.installed() {
		return notFound()
	}
	if name := r.PathValue("repo"); name != "" && a.repos[strings.ToLower(name)] == nil {
		return notFound()
	}
	if strings.HasPrefix(r.URL.Path, "/orgs/") && a.kind != typeOrganization {
		return notFound()
	}
	writeJSON(w, http.StatusOK, s.installationJSON(a))
	return nil
}

func (s *Server) listInstallationRepos(w http.ResponseWriter, r *http.Request, who caller) error {
	if who.installation() == 0 {
		return failf(http.StatusForbidden, "You must authenticate with an installation access token in order to list repositories for an installation.")
	}
	s.mu.Lock()
	repos := make([]map[string]any, 0, len(who.account.repos))
	for _, rp := range sortedRepos(who.account) {
		repos = append(repos, s.repositoryMembers(rp))
	}
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"total_count": len(repos), "repositories": page(w, r, s.opts.URL, repos)})
	return nil
}

func (s *Server) getRateLimit(w http.ResponseWriter, _ *http.Request, who caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	resources := map[string]any{}
	for name, limit := range map[string]RateLimit{bucketCore: s.opts.Core, bucketRegistration: s.opts.Registration} {
		win := s.windowLocked(who.name(s.opts.AppID)+"\x00"+name, limit.Window, s.now())
		resources[name] = map[string]any{
			"limit": limit.Limit, "used": win.used, "remaining": max(0, limit.Limit-win.used), "reset": win.reset.Unix(),
		}
	}
	const searches = 30 // a minute, of which none is made here
	resources["search"] = map[string]any{"limit": searches, "used": 0, "remaining": searches, "reset": s.now().Add(time.Minute).Unix()}
	writeJSON(w, http.StatusOK, map[string]any{"resources": resources, "rate": resources[bucketCore]})
	return nil
}
