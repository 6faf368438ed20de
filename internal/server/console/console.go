package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// Options configure a Console; API, Admission and Secret are required.
type Options struct {
	// API serves /api/v1, and Admission the same paths to say who may (admin.API has both).
	API, Admission http.Handler
	// Secret is shared by all replicas and nothing else: the key that seals sessions is derived from it.
	Secret []byte
	// Counters are this process's; what recovery did is read from them.
	Counters prometheus.Gatherer
	Log      *slog.Logger
	Now      func() time.Time
	// Version is this program's, for the pages' footer.
	Version string
	// Every is how often an open page is read again; default 2 s.
	Every time.Duration
	// Beat is how often a stream reports how old its data is; default 3 s. A page is called live while its data is younger than Fresh; default 10 s.
	Beat, Fresh time.Duration
	// Recheck is the interval at which a stream's user is authorized again: whether the token is still valid, and may see the page; default
	// 15 s.
	Recheck time.Duration
	// OIDC is how people log in at an identity provider; nil: they cannot.
	OIDC *OIDC
	// MostStreams bounds the pages that are kept live at a time; default 200. Further ones are served, and do not move.
	MostStreams int
}

// Console holds the pages. It keeps no state about users, so any replica can serve any request; its live pages end with Run. It is safe for
// concurrent use.
type Console struct {
	opt   Options
	seal  *sealer
	codes *usedCodes
	views *views
	pages []page
	// provider is nil where people log in with tokens alone.
	provider *provider
}

// New checks the options and parses the templates.
func New(opt Options) (*Console, error) {
	if opt.API == nil || opt.Admission == nil {
		return nil, errors.New("console: the administrators' API and its access are required")
	}
	if opt.Counters == nil {
		opt.Counters = prometheus.NewRegistry()
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Every == 0 {
		opt.Every = 2 * time.Second
	}
	if opt.Beat == 0 {
		opt.Beat = 3 * time.Second
	}
	if opt.Fresh == 0 {
		opt.Fresh = 10 * time.Second
	}
	if opt.Recheck == 0 {
		opt.Recheck = 15 * time.Second
	}
	if opt.MostStreams == 0 {
		opt.MostStreams = 200
	}
	seal, err := newSealer(opt.Secret)
	if err != nil {
		return nil, fmt.Errorf("deriving the console's key: %w", err)
	}
	c := &Console{opt: opt, seal: seal, codes: newUsedCodes(), pages: pages()}
	c.views = newViews(c)
	if opt.OIDC != nil {
		if c.provider, err = newProvider(*opt.OIDC, opt.Now); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Run keeps pages live until ctx ends; then every stream is ended, and nothing of it runs any more when it returns.
func (c *Console) Run(ctx context.Context) error {
	<-ctx.Done()
	c.views.stop()
	return nil
}

// Handler serves /ui/.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, p := range c.pages {
		mux.HandleFunc("GET "+p.pattern, func(w http.ResponseWriter, r *http.Request) { c.servePage(w, r, p) })
	}
	for _, a := range actions() {
		mux.HandleFunc("GET "+a.pattern, func(w http.ResponseWriter, r *http.Request) { c.showForm(w, r, a) })
		mux.HandleFunc("POST "+a.pattern, func(w http.ResponseWriter, r *http.Request) { c.sendForm(w, r, a) })
	}
	mux.HandleFunc("GET /ui/login", c.loginPage)
	mux.HandleFunc("POST /ui/login", c.login)
	mux.HandleFunc("POST /ui/logout", c.logout)
	if c.provider != nil {
		mux.HandleFunc("GET "+pathOIDC, c.beginOIDC)
		mux.HandleFunc("GET "+pathCallback, c.endOIDC)
	}
	mux.HandleFunc("POST "+adminapi.PathConsoleCode, c.issueCode)
	mux.HandleFunc("GET "+pathUsageCSV, c.downloadUsage)
	mux.HandleFunc("GET "+pathUsageJSON, c.downloadUsage)
	mux.HandleFunc("GET /ui/stream", c.stream)
	mux.HandleFunc("GET /ui/static/{name}", serveStatic)
	mux.HandleFunc("GET /ui", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ui/", http.StatusSeeOther) })
	mux.HandleFunc("/ui/", c.nothing)
	// What changes something is taken from this origin alone, beside the session's cookie, which no other site makes a browser send.
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.refusePage(w, r, http.StatusForbidden, "The request came from another site. Open the console itself and try again.")
	}))
	return withHeaders(protection.Handler(mux))
}

func (c *Console) nothing(w http.ResponseWriter, r *http.Request) {
	c.refusePage(w, r, http.StatusNotFound, "This page does not exist.")
}

// policy lets a page run and show what this server serves as a file, and nothing inline: text that an attacker gets into the HTML still
// runs nothing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		if secure(r) {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}
