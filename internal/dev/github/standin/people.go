package standin

import (
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Enterprise holds accounts. Its runners serve the jobs of all of them; GitHub Apps cannot register there.
type Enterprise struct {
	// Slug is its name in addresses.
	Slug string `json:"slug"`
	// Accounts are the logins of its organizations, which must exist.
	Accounts []string `json:"accounts"`
	// RunnerGroups are its own, beside Default. Their ids count from 2.
	RunnerGroups []string `json:"runner_groups,omitempty"`
}

// PersonalToken is a person's access token.
type PersonalToken struct {
	// Name tells tokens apart.
	Name string `json:"name"`
	// Value is what calls carry; one is made when it is empty.
	Value string `json:"value,omitempty"`
	// Accounts are the logins that it reaches ("acme", "enterprises/big"); none means all.
	Accounts []string `json:"accounts,omitempty"`
	// Powerless indicates that the person may read, and may not administer runners: those calls answer 403.
	Powerless bool `json:"powerless,omitempty"`
}

type personalToken struct{ PersonalToken }

func (p *personalToken) reaches(a *account) bool {
	return a != nil && (len(p.Accounts) == 0 ||
		slices.ContainsFunc(p.Accounts, func(login string) bool { return strings.EqualFold(login, a.login) }))
}

// enterpriseLogin is under which name an enterprise is among the accounts: no account's login holds a slash.
func enterpriseLogin(slug string) string { return "enterprises/" + slug }

// personLocked finds out for which account a call with a person's token speaks: the one that its path names, if it reaches that.
func (s *Server) personLocked(r *http.Request, person *personalToken) (caller, *apiError) {
	who := caller{person: person}
	var named *account
	switch {
	case r.PathValue("enterprise") != "":
		named = s.accounts[strings.ToLower(enterpriseLogin(r.PathValue("enterprise")))]
	case r.PathValue("login") != "":
		named = s.accounts[strings.ToLower(r.PathValue("login"))]
	case r.PathValue("repo_id") != "":
		for _, a := range s.accounts {
			if _, err := repoByIDLocked(r, caller{account: a}); err == nil {
				named = a
			}
		}
	}
	if person.reaches(named) {
		who.account = named
	}
	return who, nil
}

// AddToken makes a person's token, and returns it with its value.
func (s *Server) AddToken(token PersonalToken) (PersonalToken, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token.Name == "" {
		return PersonalToken{}, failf(http.StatusUnprocessableEntity, "the token has no name")
	}
	if token.Value == "" {
		token.Value = s.token("ghp_")
	}
	s.people[token.Value] = &personalToken{token}
	s.markDirty()
	return token, nil
}

// RevokeToken ends every token of that name. It reports whether there was any.
func (s *Server) RevokeToken(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.people)
	maps.DeleteFunc(s.people, func(_ string, person *personalToken) bool { return person.Name == name })
	s.markDirty()
	return len(s.people) < before
}

// AddEnterprise adds an enterprise, or accounts and runner groups to one that exists.
func (s *Server) AddEnterprise(enterprise Enterprise) (Enterprise, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !validName(enterprise.Slug) {
		return Enterprise{}, failf(http.StatusUnprocessableEntity, "%q is not an enterprise's slug", enterprise.Slug)
	}
	var members []*account
	for _, login := range enterprise.Accounts {
		member := s.accounts[strings.ToLower(login)]
		if member == nil || member.kind != typeOrganization {
			return Enterprise{}, failf(http.StatusUnprocessableEntity, "there is no organization %q: add its installation first", login)
		}
		members = append(members, member)
	}
	login := enterpriseLogin(enterprise.Slug)
	a := s.accounts[strings.ToLower(login)]
	if a == nil {
		a = &account{id: s.nextIDLocked("account", 9_000_000), login: login, kind: typeEnterprise, repos: map[string]*repo{}, jobGroups: map[string]*jobGroup{}}
		a.scope = newScope(login, a, nil)
		s.accounts[strings.ToLower(login)] = a
	}
	a.addGroups(enterprise.RunnerGroups)
	for _, member := range members {
		member.join(a)
	}
	s.changedLocked()
	out := Enterprise{Slug: strings.TrimPrefix(a.login, enterpriseLogin("")), RunnerGroups: slices.Clone(a.groups)}
	for _, member := range a.members {
		out.Accounts = append(out.Accounts, member.login)
	}
	return out, nil
}

// join moves an account into an enterprise.
func (a *account) join(enterprise *account) {
	if a.enterprise == enterprise {
		return
	}
	if a.enterprise != nil {
		a.enterprise.members = slices.DeleteFunc(a.enterprise.members, func(other *account) bool { return other == a })
	}
	a.enterprise = enterprise
	enterprise.members = append(enterprise.members, a)
}

func (a *account) addGroups(names []string) {
	for _, name := range names {
		if !slices.ContainsFunc(a.groups, func(other string) bool { return strings.EqualFold(name, other) }) {
			a.groups = append(a.groups, name)
		}
	}
}

// scopes are where runners may be registered that take the repository's jobs; some may be nil.
func (r *repo) scopes() []*scope {
	all := []*scope{r.scope, r.owner.scope}
	if r.owner.enterprise != nil {
		all = append(all, r.owner.enterprise.scope)
	}
	return all
}

// jobs yields the groups of queued jobs that a runner of the scope might take, of all repositories of their owners.
func (sc *scope) jobs() iter.Seq[*jobGroup] {
	return func(yield func(*jobGroup) bool) {
		for _, a := range append([]*account{sc.owner}, sc.owner.members...) {
			for _, group := range a.jobGroups {
				if !yield(group) {
					return
				}
			}
		}
	}
}

func (s *Server) adminAddEnterprise(w http.ResponseWriter, r *http.Request) error {
	var in Enterprise
	if err := readJSON(r, &in); err != nil {
		return err
	}
	out, err := s.AddEnterprise(in)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, out)
	return nil
}

func (s *Server) adminAddToken(w http.ResponseWriter, r *http.Request) error {
	var in PersonalToken
	if err := readJSON(r, &in); err != nil {
		return err
	}
	out, err := s.AddToken(in)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, out)
	return nil
}

func (s *Server) adminRevokeToken(w http.ResponseWriter, r *http.Request) error {
	if !s.RevokeToken(r.PathValue("name")) {
		return failf(http.StatusNotFound, "there is no token %q", r.PathValue("name"))
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
