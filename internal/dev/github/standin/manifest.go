package standin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A GitHub App is registered by a manifest in three steps: a browser posts it, a user confirms it on the page that GitHub shows, and the
// code that GitHub redirects with is exchanged for the App's credentials. All three take an hour at most. The stand-in is as strict as
// GitHub about what it was seen to refuse, and stricter elsewhere. The App that it registers is kept and not served: there is one App.

const (
	manifestLife      = time.Hour
	longestAppName    = 34
	patternConversion = "POST /app-manifests/{code}/conversions"
	// pathConfirm is the stand-in's own: GitHub's page posts elsewhere.
	pathConfirm = "/settings/apps/confirm-manifest"
)

// appManifest is what a manifest may hold.
type appManifest struct {
	Name        string            `json:"name"`
	URL         string            `json:"url"`
	Description string            `json:"description"`
	Hook        *manifestHook     `json:"hook_attributes"`
	RedirectURL string            `json:"redirect_url"`
	Callbacks   []string          `json:"callback_urls"`
	SetupURL    string            `json:"setup_url"`
	Public      bool              `json:"public"`
	Permissions map[string]string `json:"default_permissions"`
	Events      []string          `json:"default_events"`
}

type manifestHook struct {
	URL    string `json:"url"`
	Active *bool  `json:"active"`
}

// manifestFlow is one registration.
type manifestFlow struct {
	manifest appManifest
	owner    *account // nil: the user who is logged in
	state    string
	began    time.Time
	id       int64
	slug     string
	used     bool // the code was exchanged
}

// RegisteredApp is an App that was registered by a manifest.
type RegisteredApp struct {
	ID          int64
	Name, Slug  string
	Owner       string // of an organization; empty: the user who is logged in
	Public      bool
	HookURL     string
	HookActive  bool
	Permissions map[string]string
	Events      []string
	// Converted: its credentials were given out.
	Converted bool
}

// RegisteredApps are those that were confirmed, oldest first.
func (s *Server) RegisteredApps() []RegisteredApp {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []RegisteredApp
	for _, flow := range s.ownApps {
		m := flow.manifest
		app := RegisteredApp{
			ID: flow.id, Name: m.Name, Slug: flow.slug, Public: m.Public, Permissions: maps.Clone(m.Permissions), Events: slices.Clone(m.Events), Converted: flow.used,
		}
		if flow.owner != nil {
			app.Owner = flow.owner.login
		}
		if m.Hook != nil {
			app.HookURL, app.HookActive = m.Hook.URL, m.Hook.Active == nil || *m.Hook.Active
		}
		out = append(out, app)
	}
	return out
}

func (s *Server) manifestRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /settings/apps/new", s.postManifest)
	mux.HandleFunc("POST /organizations/{login}/settings/apps/new", s.postManifest)
	mux.HandleFunc("POST "+pathConfirm, s.confirmManifest)
	s.rest(mux, patternConversion, bucketCore, authNone, s.convertManifest)
}

var manifestPage = template.Must(template.New("manifest").Parse(`<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title></head><body>
<h1>{{.Title}}</h1>
{{range .Errors}}<p class="error">{{.}}</p>
{{end}}{{if .Token}}<form method="post" action="{{.Action}}"><input type="hidden" name="token" value="{{.Token}}">
<label>GitHub App name <input type="text" name="name" value="{{.Name}}"></label><button type="submit">{{.Title}}</button></form>
{{end}}</body></html>
`))

type manifestPageData struct {
	Title, Action, Token, Name string
	Errors                     []string
}

func (s *Server) showManifestPage(w http.ResponseWriter, status int, data manifestPageData) {
	data.Action = s.opts.URL + pathConfirm
	var b bytes.Buffer
	if err := manifestPage.Execute(&b, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the browser may be gone
}

func createTitle(owner *account) string {
	if owner == nil {
		return "Create GitHub App"
	}
	return "Create GitHub App for " + owner.login
}

// postManifest shows the page on which a user confirms the App.
func (s *Server) postManifest(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	var owner *account
	if login := r.PathValue("login"); login != "" {
		s.mu.Lock()
		owner = s.accounts[strings.ToLower(login)]
		s.mu.Unlock()
		if owner == nil || owner.kind != typeOrganization {
			http.NotFound(w, r)
			return
		}
	}
	m, wrong := parseManifest(r.PostFormValue("manifest"))
	if len(wrong) > 0 {
		s.showManifestPage(w, http.StatusUnprocessableEntity, manifestPageData{Title: "Invalid GitHub App configuration", Errors: wrong})
		return
	}
	token := s.token("")
	s.mu.Lock()
	s.manifests[token] = &manifestFlow{manifest: m, owner: owner, state: r.URL.Query().Get("state"), began: s.now()}
	s.mu.Unlock()
	s.showManifestPage(w, http.StatusOK, manifestPageData{Title: createTitle(owner), Token: token, Name: m.Name})
}

// confirmManifest registers the App and redirects back, or shows the page again with what is wrong with the name.
func (s *Server) confirmManifest(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	token, name := r.PostFormValue("token"), strings.TrimSpace(r.PostFormValue("name"))
	s.mu.Lock()
	flow := s.manifests[token]
	if flow == nil || s.manifestEnded(flow) {
		s.mu.Unlock()
		http.NotFound(w, r)
		return
	}
	if wrong := s.nameErrorsLocked(name, flow.owner); len(wrong) > 0 {
		s.mu.Unlock()
		s.showManifestPage(w, http.StatusUnprocessableEntity, manifestPageData{Title: createTitle(flow.owner), Token: token, Name: name, Errors: wrong})
		return
	}
	delete(s.manifests, token)
	flow.manifest.Name, flow.slug, flow.id = name, appSlug(name), s.nextIDLocked("app", 1_200_000)
	code := s.token("")
	s.manifestCodes[code] = flow
	s.ownApps = append(s.ownApps, flow)
	s.mu.Unlock()
	back, err := url.Parse(flow.manifest.RedirectURL)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError) // parseManifest has parsed it before
		return
	}
	query := back.Query()
	query.Set("code", code)
	if flow.state != "" {
		query.Set("state", flow.state)
	}
	back.RawQuery = query.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (s *Server) manifestEnded(flow *manifestFlow) bool {
	return s.now().Sub(flow.began) >= manifestLife
}

// convertManifest gives the credentials out, once.
func (s *Server) convertManifest(w http.ResponseWriter, r *http.Request, _ caller) error {
	code := r.PathValue("code")
	s.mu.Lock()
	flow := s.manifestCodes[code]
	delete(s.manifestCodes, code)
	if flow == nil || s.manifestEnded(flow) {
		s.mu.Unlock()
		return notFound()
	}
	flow.used = true
	s.mu.Unlock()
	_, key, err := GenerateAppKey()
	if err != nil {
		return err
	}
	owner := s.sender()
	if flow.owner != nil {
		owner = s.ownerJSON(flow.owner)
	}
	m := flow.manifest
	out := map[string]any{
		"id": flow.id, "node_id": fmt.Sprintf("A_%d", flow.id), "slug": flow.slug, "name": m.Name, "owner": s.accountMembers(owner), "description": orNull(m.Description),
		"external_url": m.URL, "html_url": s.opts.URL + "/apps/" + flow.slug, "created_at": stamp(flow.began), "updated_at": stamp(flow.began),
		"permissions": m.Permissions, "events": append([]string{}, m.Events...),
		"client_id": s.token("Iv23"), "client_secret": s.token(""), "webhook_secret": nil, "pem": string(key),
	}
	if m.Hook != nil {
		out["webhook_secret"] = s.token("")
	}
	writeJSON(w, http.StatusCreated, out)
	return nil
}

// manifestPermissions are those that the stand-in knows, with their levels. GitHub has more.
var manifestPermissions = map[string][]string{
	"actions": {"read", "write"}, "administration": {"read", "write"}, "checks": {"read", "write"}, "contents": {"read", "write"}, "metadata": {"read"},
	"organization_self_hosted_runners": {"read", "write"},
}

// manifestEvents are those that the stand-in knows, each with the permission without which no App may subscribe to it.
var manifestEvents = map[string]string{"workflow_job": "actions", "workflow_run": "actions", "push": "contents", "check_run": "checks"}

// parseManifest returns everything that is wrong, as GitHub's page lists it.
func parseManifest(text string) (appManifest, []string) {
	var m appManifest
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil || decoder.More() {
		return m, []string{"The configuration does not appear to be a valid GitHub App manifest."}
	}
	var wrong []string
	for _, one := range []struct{ member, value string }{{"url", m.URL}, {"redirect_url", m.RedirectURL}} {
		if !webAddress(one.value) {
			wrong = append(wrong, fmt.Sprintf("Error %q wasn't supplied, or is not an http or https URL.", one.member))
		}
	}
	wrong = append(wrong, m.Hook.errors()...)
	for name, level := range m.Permissions {
		levels, known := manifestPermissions[name]
		if !known {
			wrong = append(wrong, "Default permission records resource is not included in the list: "+name)
		} else if !slices.Contains(levels, level) {
			wrong = append(wrong, fmt.Sprintf("Default permission %s cannot be %q.", name, level))
		}
	}
	for _, event := range m.Events {
		needs, known := manifestEvents[event]
		if !known || m.Permissions[needs] == "" {
			wrong = append(wrong, "Default events unsupported: "+event)
		}
	}
	slices.Sort(wrong)
	return m, wrong
}

func webAddress(text string) bool {
	at, err := url.Parse(text)
	return err == nil && at.Host != "" && (at.Scheme == "http" || at.Scheme == "https")
}

// errors: a hook has a URL, also an inactive one, and its host is checked whether or not it is active.
func (h *manifestHook) errors() []string {
	if h == nil {
		return nil
	}
	if !webAddress(h.URL) {
		return []string{`Error "url" wasn't supplied.`}
	}
	at, err := url.Parse(h.URL)
	if err != nil {
		return []string{"Hook url is not usable."}
	}
	host := strings.ToLower(at.Hostname())
	ip := net.ParseIP(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return []string{"Hook url is not supported because it isn't reachable over the public Internet (" + host + ")"}
	}
	return nil
}

// nameErrorsLocked: a name is unique among Apps, and among accounts but its owner's.
func (s *Server) nameErrorsLocked(name string, owner *account) []string {
	slug := appSlug(name)
	taken := strings.EqualFold(slug, s.opts.AppSlug) || slices.ContainsFunc(s.ownApps, func(other *manifestFlow) bool { return other.slug == slug })
	other := s.accounts[slug]
	switch {
	case slug == "":
		return []string{"Name can't be blank"}
	case utf8.RuneCountInString(name) > longestAppName:
		return []string{fmt.Sprintf("Name is too long (maximum is %d characters)", longestAppName)}
	case taken, other != nil && other != owner:
		return []string{"Name is already taken"}
	}
	return nil
}

// appSlug is a name in lower case, with a hyphen for whatever is no letter or digit.
func appSlug(name string) string {
	slug := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, name)
	return strings.Trim(slug, "-")
}
