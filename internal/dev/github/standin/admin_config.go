package standin

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// What the admin API changes about the server itself: faults, installations, where webhooks go.

func (s *Server) adminFaults(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]any{"faults": s.faults.list()})
	return nil
}

func (s *Server) adminAddFault(w http.ResponseWriter, r *http.Request) error {
	var f Fault
	if err := readJSON(r, &f); err != nil {
		return err
	}
	added, err := s.AddFault(f)
	if err != nil {
		return failf(http.StatusUnprocessableEntity, "%v", err)
	}
	writeJSON(w, http.StatusCreated, added)
	return nil
}

// RemoveFault ends one fault, or all of them with id 0. It reports whether there was any.
func (s *Server) RemoveFault(id int64) bool { return s.faults.remove(id) }

func (s *Server) adminRemoveFaults(w http.ResponseWriter, r *http.Request) error {
	var id int64
	if r.PathValue("id") != "" {
		var bad *apiError
		if id, bad = pathID(r, "id"); bad != nil {
			return bad
		}
	}
	if !s.RemoveFault(id) && id != 0 {
		return failf(http.StatusNotFound, "there is no fault %d", id)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) adminInstallations(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Installation{}
	for _, a := range s.installOrder {
		out = append(out, a.view())
	}
	writeJSON(w, http.StatusOK, map[string]any{"installations": out})
	return nil
}

func (a *account) view() Installation {
	v := Installation{
		ID: a.installation, Account: a.login, Type: a.kind, Repositories: []string{}, RunnerGroups: slices.Clone(a.groups), GroupAccess: maps.Clone(a.access), Suspended: !a.suspendedAt.IsZero(),
	}
	for _, r := range sortedRepos(a) {
		v.Repositories = append(v.Repositories, r.name)
		if r.public {
			v.PublicRepositories = append(v.PublicRepositories, r.name)
		}
	}
	return v
}

// Install adds an installation, or repositories to one that exists, and sends its "installation created" webhook.
func (s *Server) Install(in Installation) (Installation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.installLocked(in)
	if err != nil {
		return Installation{}, err
	}
	s.announceLocked(a)
	s.rematchLocked(a) // its groups may serve others now
	return a.view(), nil
}

func (s *Server) withInstallation(id int64, change func(*account) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.installations[id]
	if a == nil {
		return failf(http.StatusNotFound, "there is no installation %d", id)
	}
	if err := change(a); err != nil {
		return err
	}
	s.changedLocked()
	return nil
}

// Suspend suspends an installation, as its account's owner may: its webhook announces it, and from then on the App gets no events of the
// account, and its requests are refused (403). Runners and jobs continue.
func (s *Server) Suspend(id int64) error {
	return s.withInstallation(id, func(a *account) error {
		if !a.suspendedAt.IsZero() {
			return failf(http.StatusConflict, "installation %d is suspended already", id)
		}
		a.suspendedAt = s.now()
		s.installationEventLocked(a, "suspend")
		return nil
	})
}

// Unsuspend ends a suspension. Events of the time in between are not delivered afterwards.
func (s *Server) Unsuspend(id int64) error {
	return s.withInstallation(id, func(a *account) error {
		if a.suspendedAt.IsZero() {
			return failf(http.StatusConflict, "installation %d is not suspended", id)
		}
		a.suspendedAt = time.Time{}
		s.installationEventLocked(a, "unsuspend")
		return nil
	})
}

// Uninstall takes the App from an account: its webhook says so, its tokens end, and the installation is not found any
// more. The account's runners and jobs stay: they are its own. Install with the same account installs the App again,
// under another id unless one is given.
func (s *Server) Uninstall(id int64) error {
	return s.withInstallation(id, func(a *account) error {
		s.installationEventLocked(a, "deleted")
		delete(s.installations, id)
		s.installOrder = slices.DeleteFunc(s.installOrder, func(other *account) bool { return other == a })
		maps.DeleteFunc(s.appTokens, func(_ string, token *installationToken) bool { return token.account == a })
		a.installation, a.suspendedAt = 0, time.Time{}
		return nil
	})
}

func (s *Server) adminInstall(w http.ResponseWriter, r *http.Request) error {
	var in Installation
	if err := readJSON(r, &in); err != nil {
		return err
	}
	view, err := s.Install(in)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, view)
	return nil
}

func (s *Server) adminAnnounce(w http.ResponseWriter, r *http.Request) error {
	a, err := s.pathInstallation(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.announceLocked(a)
	s.mu.Unlock()
	writeJSON(w, http.StatusAccepted, struct{}{})
	return nil
}

// SetWebhook changes where webhooks go from now on, and how they are signed.
func (s *Server) SetWebhook(url, secret string) error {
	if err := validateWebhookURL(url); err != nil {
		return failf(http.StatusUnprocessableEntity, "%v", err)
	}
	s.hooks.target(url, secret)
	return nil
}

func (s *Server) adminWebhook(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		URL    string `json:"url"`
		Secret string `json:"secret"`
	}
	if err := readJSON(r, &q); err != nil {
		return err
	}
	if err := s.SetWebhook(q.URL, q.Secret); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
