package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/openapi"
)

// Options configure an API; Store, Access and Fleet are required.
type Options struct {
	Store  Store
	Access Access
	// Fleet is what is known beside the ledger.
	Fleet   Fleet
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Now     func() time.Time
	// Trace returns the id of a job's trace and where it is shown, each empty when there is none; nil when jobs are not traced.
	Trace func(jobID int64) (id, link string)
	// GitHub is the web address of GitHub, such as https://github.com: jobs link to it. Empty: it has no pages.
	GitHub string
	// Timeout bounds one request; default 15 s.
	Timeout time.Duration
	// Version of the server, which authenticated clients receive; empty: none.
	Version string
}

// API holds the handlers. It keeps nothing but answers about the past, for seconds, and is safe for concurrent use.
type API struct {
	opt       Options
	requests  *prometheus.CounterVec
	histories historyCache
}

// New checks the options.
func New(opt Options) (*API, error) {
	if opt.Store == nil || opt.Access == nil || opt.Fleet == nil {
		return nil, errors.New("admin API: Store, Fleet and Access are required")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Metrics == nil {
		opt.Metrics = prometheus.NewRegistry()
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Trace == nil {
		opt.Trace = func(int64) (string, string) { return "", "" }
	}
	if opt.Timeout == 0 {
		opt.Timeout = 15 * time.Second
	}
	opt.GitHub = strings.TrimRight(opt.GitHub, "/")
	a := &API{opt: opt, requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "bullpen_admin_requests_total", Help: "Requests to the admin API, by verb, resource and outcome.",
	}, []string{"verb", "resource", "outcome"})}
	opt.Metrics.MustRegister(a.requests)
	return a, nil
}

// request is one that was admitted: who asks, and for what.
type request struct {
	*http.Request
	user User
	name string // of the account, or the job's id; empty where there is none
	verb string // after the colon
}

// change begins a change by the request's user.
func (r request) change(reason string, version int64, now time.Time) Change {
	return Change{
		Account: r.name, Actor: r.user.Name, Credential: r.user.Credential, Requester: r.user.Requester, Stated: r.user.Stated,
		Reason: reason, Version: version, At: now,
	}
}

// route is one thing that administrators can do. There is no way to serve one without a right.
type route struct {
	pattern string
	right   Right
	serve   func(a *API, w http.ResponseWriter, r request) error
}

// Route is one thing that administrators can do: the pattern that serves it, and the right that it needs.
type Route struct {
	Pattern string
	Right   Right
}

// Routes are all of them, for documentation of the API.
func Routes() []Route {
	var all []Route
	for _, rt := range routes() {
		all = append(all, Route{rt.pattern, rt.right})
	}
	return all
}

// PathDocument is the URL path of the API's description. It is the same everywhere and reveals nothing of an installation: it needs no
// authentication.
const PathDocument = "/api/v1/openapi.yaml"

func routes() []route {
	accounts := adminapi.PathAccounts
	one := func(verb string) Right { return Right{Verb: verb, Resource: adminapi.ResourceAccounts} }
	job := func(verb string) Right { return Right{Verb: verb, Resource: adminapi.ResourceJobs} }
	return []route{
		{"GET " + accounts, one("list"), (*API).listAccounts},
		{"GET " + accounts + "/{account}", one("get"), (*API).getAccount},
		{"PATCH " + accounts + "/{account}/limits", one("update"), (*API).changeLimits},
		{"POST " + accounts + "/{account}", one("update"), (*API).accountVerb},
		{"DELETE " + accounts + "/{account}", one("delete"), (*API).deleteAccount},
		{"GET " + adminapi.PathAudit, Right{Verb: "list", Resource: adminapi.ResourceAudits}, (*API).listAudit},
		{"GET " + adminapi.PathJobs, job("list"), (*API).listJobs},
		{"GET " + adminapi.PathConclusions, job("list"), (*API).countConclusions},
		{"GET " + adminapi.PathJobs + "/{job}", job("get"), (*API).getJob},
		{"GET " + adminapi.PathJobs + "/{job}/why", job("get"), (*API).whyJob},
		{"GET " + adminapi.PathPools, Right{Verb: "list", Resource: adminapi.ResourcePools}, (*API).listPools},
		{"GET " + adminapi.PathPools + "/{namespace}/{pool}", Right{Verb: "get", Resource: adminapi.ResourcePools}, (*API).getPool},
		{"GET " + adminapi.PathPools + "/{namespace}/{pool}/history", Right{Verb: "get", Resource: adminapi.ResourcePools}, (*API).poolHistory},
		{"GET " + adminapi.PathHistory, Right{Verb: "list", Resource: adminapi.ResourcePools}, (*API).fleetHistory},
		{"GET " + adminapi.PathRunners, Right{Verb: "list", Resource: adminapi.ResourceRunnerPods}, (*API).listRunners},
		{"GET " + adminapi.PathHosts, Right{Verb: "list", Resource: adminapi.ResourceHosts}, (*API).listHosts},
		{"GET " + adminapi.PathUsage, Right{Verb: "list", Resource: adminapi.ResourceUsage}, (*API).listUsage},
		{"GET " + adminapi.PathUsageByDay, Right{Verb: "list", Resource: adminapi.ResourceUsage}, (*API).listUsageByDay},
		{"GET " + adminapi.PathRunners + "/{namespace}/{runner}/log", Right{Verb: "get", Resource: adminapi.ResourceRunnerLogs}, (*API).runnerLog},
		{"POST " + adminapi.PathRunners + "/{namespace}/{runner}/retire", Right{Verb: adminapi.VerbRetire, Resource: adminapi.ResourceRunnerPods}, (*API).retireRunner},
	}
}

// Handler serves /api/v1.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, rt := range routes() {
		mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, rt) })
	}
	mux.HandleFunc("GET "+PathDocument, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(openapi.Document()) // the client has gone
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "path not found; accounts are at "+adminapi.PathAccounts+" and jobs at "+adminapi.PathJobs)
	})
	return mux
}

// Admission has the paths of Handler and serves none of them: an authorized request gets 204, all others the same answer as from Handler.
// The console uses it to check whether its user may still see a page (NET-5).
func (a *API) Admission() http.Handler {
	mux := http.NewServeMux()
	for _, rt := range routes() {
		mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), a.opt.Timeout)
			defer cancel()
			req, right := a.begin(r.WithContext(ctx), rt)
			if a.admit(w, &req, right) == "" {
				w.WriteHeader(http.StatusNoContent)
			}
		})
	}
	return mux
}

// begin says what a request is about, and the right that it needs.
func (a *API) begin(r *http.Request, rt route) (request, Right) {
	req := request{Request: r, name: cmp.Or(r.PathValue("account"), r.PathValue("job"), r.PathValue("pool"), r.PathValue("runner"))}
	if r.Method == http.MethodPost {
		req.name, req.verb = cutVerb(req.name)
	}
	right := rt.right
	right.Name = req.name
	return req, right
}

// serve authenticates and authorizes the request before it reads anything else of it (NET-5).
func (a *API) serve(w http.ResponseWriter, r *http.Request, rt route) {
	ctx, cancel := context.WithTimeout(r.Context(), a.opt.Timeout)
	defer cancel()
	req, right := a.begin(r.WithContext(ctx), rt)
	outcome := a.admit(w, &req, right)
	if outcome == "" {
		outcome = a.answer(ctx, w, req, rt)
	}
	a.requests.WithLabelValues(right.Verb, right.Resource, outcome).Inc()
}

func cutVerb(segment string) (name, verb string) {
	at := strings.LastIndex(segment, ":")
	if at < 0 {
		return segment, ""
	}
	return segment[:at], segment[at+1:]
}

// admit lets a request through (""), or answers it and says how.
func (a *API) admit(w http.ResponseWriter, r *request, right Right) string {
	ctx := r.Context()
	user, err := a.identify(r)
	switch {
	case errors.Is(err, errNoToken):
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, "authentication required: send a Kubernetes token as a bearer token, or use the bullpen command")
		return "unauthenticated"
	case errors.Is(err, ErrRejected):
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, "the cluster rejects this token: request a new one for the audience "+adminapi.Audience)
		return "unauthenticated"
	case err != nil:
		a.unavailable(ctx, w, "reviewing a token", err)
		return "unavailable"
	}
	if a.opt.Version != "" {
		w.Header().Set(adminapi.HeaderVersion, a.opt.Version)
	}
	if who, asked := ctx.Value(askedKey{}).(*User); asked {
		*who = user
	}
	allowed, err := a.opt.Access.Allowed(ctx, user, right)
	if err != nil {
		a.unavailable(ctx, w, "reviewing a user's access", err)
		return "unavailable"
	}
	if !allowed { // NET-5
		refuse(w, http.StatusForbidden, user.Name+" may not "+right.Verb+" "+right.Resource+"."+adminapi.Group+
			": bind the ClusterRole "+roles(right)+" to it")
		return "forbidden"
	}
	r.user = user
	return ""
}

// roles are those of the chart that a right is in.
func roles(right Right) string {
	if (right.Verb == "get" || right.Verb == "list") && right.Resource != adminapi.ResourceRunnerLogs {
		return "bullpen-viewer or bullpen-admin"
	}
	return "bullpen-admin"
}

// errNoToken: a request says nothing of who asks.
var errNoToken = errors.New("no token")

func (a *API) identify(r *request) (User, error) {
	if user, known := r.Context().Value(userKey{}).(User); known {
		return user, nil
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return User{}, errNoToken
	}
	return a.opt.Access.Identify(r.Context(), token)
}

func (a *API) unavailable(ctx context.Context, w http.ResponseWriter, doing string, err error) {
	a.opt.Log.WarnContext(ctx, doing, "error", err)
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, "authentication and authorization are unavailable, because the Kubernetes API does not respond: retry")
}

// answer serves an admitted request and translates what went wrong.
func (a *API) answer(ctx context.Context, w http.ResponseWriter, r request, rt route) string {
	w.Header().Set("Cache-Control", "no-store")
	err := rt.serve(a, w, r)
	var conflict *ConflictError
	var version *VersionError
	var invalid *InvalidError
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, errNoLog):
		refuse(w, http.StatusNotFound, "no log of runner \""+r.PathValue("runner")+"\". Logs of failed runners are kept for 7 days; for live pods use "+
			"`kubectl -n "+r.PathValue("namespace")+" logs "+r.PathValue("runner")+"`")
		return "not_found"
	case errors.Is(err, ErrNotFound):
		refuse(w, http.StatusNotFound, absent(r))
		return "not_found"
	case errors.As(err, &conflict):
		refuse(w, http.StatusConflict, conflict.Sentence)
		return "conflict"
	case errors.As(err, &version):
		refuse(w, http.StatusPreconditionFailed, version.Error())
		return "conflict"
	case errors.As(err, &invalid):
		refuse(w, http.StatusBadRequest, invalid.Sentence)
		return "invalid"
	}
	a.opt.Log.ErrorContext(ctx, "serving a request to the admin API", "verb", rt.right.Verb, "resource", rt.right.Resource, "error", err)
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, "the database does not respond: retry")
	return "failed"
}

func absent(r request) string {
	if name := r.PathValue("runner"); name != "" {
		return "runner \"" + name + "\" not found in namespace " + r.PathValue("namespace") + ": list runners with `bullpen runners`"
	}
	if id := r.PathValue("job"); id != "" {
		return "job " + id + " not found: for the reason, run `bullpen why " + id + "`"
	}
	if name := r.PathValue("pool"); name != "" {
		return "pool \"" + name + "\" not found in namespace " + r.PathValue("namespace") + ": list pools with `bullpen pools`"
	}
	if name := r.URL.Query().Get("pool"); name != "" {
		return "pool \"" + name + "\" not found, and not in the audit log: list pools with `bullpen pools`"
	}
	return "account \"" + cmp.Or(r.name, r.URL.Query().Get("account")) + "\" not found: list accounts with `bullpen accounts list`"
}

// maxBody bounds a request's body.
const maxBody = 64 << 10

// decode reads a JSON body strictly; one that is empty leaves into as it is when that is allowed.
func decode(w http.ResponseWriter, r request, into any, mayBeEmpty bool) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if errors.Is(err, io.EOF) && mayBeEmpty {
		return nil
	}
	if err == nil && decoder.More() {
		err = errors.New("unexpected data after it")
	}
	if err != nil {
		return &InvalidError{"invalid JSON in the request body: " + err.Error()}
	}
	return nil
}

func refuse(w http.ResponseWriter, status int, sentence string) {
	write(w, status, adminapi.Error{Error: sentence})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}
