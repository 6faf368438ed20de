package standin

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// How a runner registers itself, as GitHub's does it (actions/runner: ConfigurationManager, RunnerDotcomServer):
//
//	POST /actions/runner-registration   {"url", "runner_event": "register"} → use_v2_flow
//	GET  …/actions/runner-groups        the group by its name
//	GET  …/actions/runners?name=        is there one of that name already
//	POST /actions/runners/register      with the public half of a key that the runner has made → its id, and where to speak to
//
// each with the registration token ("RemoteAuth"). From there on it is a runner like any other, only that it stays.

// registrationTokenLife is how long GitHub's registration tokens live.
const registrationTokenLife = time.Hour

// registrationToken registers, or removes, any number of runners of one scope.
type registrationToken struct {
	scope   *scope
	remove  bool
	expires time.Time
}

// remoteAuth reads a registration token of an Authorization header.
func remoteAuth(r *http.Request) string {
	scheme, value, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "RemoteAuth") {
		return ""
	}
	return strings.TrimSpace(value)
}

// registrationCaller is the caller with a registration token. GitHub says of an expired token what it says of one that
// never was.
func (s *Server) registrationCaller(value string) (caller, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := s.registrations[value]
	if token == nil || !s.now().Before(token.expires) {
		return caller{}, notFound()
	}
	return caller{account: token.scope.owner, registration: token}, nil
}

func (s *Server) registrationRoutes(mux *http.ServeMux) {
	s.rest(mux, "POST /actions/runner-registration", bucketNone, authRegistration, s.beginRegistration)
	s.rest(mux, "POST /actions/runners/register", bucketNone, authRegistration, s.registerRunner)
}

func (s *Server) createRegistrationToken(w http.ResponseWriter, r *http.Request, who caller) error {
	return s.createScopeToken(w, r, who, false)
}

func (s *Server) createRemovalToken(w http.ResponseWriter, r *http.Request, who caller) error {
	return s.createScopeToken(w, r, who, true)
}

func (s *Server) createScopeToken(w http.ResponseWriter, r *http.Request, who caller, remove bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc, err := s.scopeLocked(r, who)
	if err != nil {
		return err
	}
	value, expires := s.token("A"), s.now().Add(registrationTokenLife)
	s.keepRegistrationLocked(value, &registrationToken{scope: sc, remove: remove, expires: expires})
	s.markDirty()
	writeJSON(w, http.StatusCreated, map[string]any{"token": value, "expires_at": expires.UTC().Format(time.RFC3339)})
	return nil
}

func (s *Server) keepRegistrationLocked(value string, token *registrationToken) {
	s.registrations[value] = token
	s.deadlineLocked(token.expires, func() { delete(s.registrations, value) })
}

func (s *Server) restoreRegistrationsLocked(st *savedState) {
	for _, saved := range st.Accounts {
		for _, login := range saved.Members {
			if member := s.accounts[strings.ToLower(login)]; member != nil {
				member.join(s.accounts[strings.ToLower(saved.Login)])
			}
		}
	}
	for value, saved := range st.Registrations {
		if sc := s.scopeByPathLocked(saved.Scope); sc != nil {
			s.keepRegistrationLocked(value, &registrationToken{scope: sc, remove: saved.Remove, expires: saved.Expires})
		}
	}
	for value, person := range st.People {
		s.people[value] = &personalToken{person}
	}
}

// scopeByPathLocked finds "acme", "acme/app" or "enterprises/big"; nil if there is none. Of a repository that is gone it is the
// owner's.
func (s *Server) scopeByPathLocked(path string) *scope {
	if a := s.accounts[strings.ToLower(path)]; a != nil {
		return a.scope
	}
	owner, name, _ := strings.Cut(path, "/")
	a := s.accounts[strings.ToLower(owner)]
	if a == nil {
		return nil
	}
	if rp := a.repos[strings.ToLower(name)]; rp != nil {
		return rp.scope
	}
	return a.scope
}

// namesScope reports whether a runner's url (https://github.example/acme/app) is the scope's.
func namesScope(address string, sc *scope) bool {
	u, err := url.Parse(address)
	return err == nil && strings.EqualFold(strings.Trim(u.Path, "/"), sc.path)
}

// beginRegistration tells a runner by which flow it is to register.
func (s *Server) beginRegistration(w http.ResponseWriter, r *http.Request, who caller) error {
	var q struct {
		URL   string `json:"url"`
		Event string `json:"runner_event"`
	}
	if err := readJSON(r, &q); err != nil {
		return err
	}
	wanted := map[bool]string{false: "register", true: "remove"}[who.registration.remove]
	if !namesScope(q.URL, who.registration.scope) || q.Event != wanted {
		return notFound()
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"url": s.opts.URL + pathPipelines + "/", "token_schema": "OAuthAccessToken", "token": s.token("reg_"), "use_v2_flow": true,
	})
	return nil
}

type registerRequest struct {
	URL       string            `json:"url"`
	GroupID   int64             `json:"group_id"`
	Name      string            `json:"name"`
	Ephemeral bool              `json:"ephemeral"`
	Labels    []registeredLabel `json:"labels"`
	PublicKey string            `json:"public_key"`
	Replace   bool              `json:"replace"`
	RunnerID  int64             `json:"runner_id"`
}

// registeredLabel is a name, or an object that says of what type it is.
type registeredLabel struct{ Name, Type string }

func (l *registeredLabel) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &l.Name) == nil {
		return nil
	}
	type plain registeredLabel
	return json.Unmarshal(data, (*plain)(l))
}

// publicKey reads the key as .NET writes it: <RSAKeyValue> with base64 numbers.
func (q *registerRequest) publicKey() (*rsa.PublicKey, bool) {
	var key struct {
		Modulus, Exponent string
	}
	if xml.Unmarshal([]byte(q.PublicKey), &key) != nil {
		return nil, false
	}
	modulus, err := base64.StdEncoding.DecodeString(key.Modulus)
	exponent, other := base64.StdEncoding.DecodeString(key.Exponent)
	e := new(big.Int).SetBytes(exponent)
	if err != nil || other != nil || len(modulus) < 256 || len(modulus) > 1024 || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 {
		return nil, false
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: int(e.Int64())}, true
}

func (q *registerRequest) labels() (names, system []string) {
	for _, label := range q.Labels {
		names = append(names, label.Name)
		if strings.EqualFold(label.Type, "System") {
			system = append(system, label.Name)
		}
	}
	return names, system
}

// registerRunner registers a runner that made its own key. One of that name is replaced when it says so: it keeps its id,
// and its former holder is signed out.
func (s *Server) registerRunner(w http.ResponseWriter, r *http.Request, who caller) error {
	var q registerRequest
	if err := readJSON(r, &q); err != nil {
		return err
	}
	names, system := q.labels()
	if err := (&jitRequest{Name: q.Name, RunnerGroupID: &q.GroupID, Labels: names}).validate(); err != nil {
		return err
	}
	key, ok := q.publicKey()
	if !ok {
		return unprocessable("public_key is no RSA key of at least 2048 bits")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := who.registration.scope
	if who.registration.remove || !namesScope(q.URL, sc) || q.GroupID > int64(len(sc.owner.groups))+defaultPoolID {
		return notFound()
	}
	rn := sc.byName[strings.ToLower(q.Name)]
	if rn != nil && (!q.Replace || q.RunnerID != 0 && q.RunnerID != rn.id) {
		return failf(http.StatusConflict, "Already exists - A runner with the name %s already exists.", q.Name)
	}
	if rn != nil && rn.job != nil {
		return failf(http.StatusConflict, "The runner %s is still running a job.", q.Name)
	}
	if rn == nil {
		rn = &runner{id: s.nextIDLocked("runner", 20_000), name: q.Name, scope: sc, os: "unknown", createdAt: s.now(), wake: make(chan struct{})}
		rn.static = !q.Ephemeral
		sc.insert(rn)
		s.runners[rn.id] = rn
		s.watchCleanupLocked(rn)
	} else {
		s.endSessionLocked(rn)
		delete(s.clients, rn.clientID)
	}
	rn.labels, rn.system, rn.groupID, rn.static = newLabelSet(names), system, q.GroupID, !q.Ephemeral
	rn.key, rn.clientID = key, s.guid()
	s.clients[rn.clientID] = rn
	s.minted++
	s.intendLocked(rn)
	s.changedLocked()
	writeJSON(w, http.StatusCreated, map[string]any{
		"id": rn.id, "name": rn.name,
		"authorization": map[string]string{
			"authorization_url": s.opts.URL + pathToken, "server_url": s.opts.URL + pathBroker + "/", "client_id": rn.clientID,
		},
	})
	return nil
}
