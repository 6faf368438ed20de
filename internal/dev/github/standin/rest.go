package standin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

// RouteCalls counts the calls of one REST route.
type RouteCalls struct {
	// Calls is how many there were, refused ones included.
	Calls int `json:"calls"`
	// ByStatus counts answers. A cut connection is status 0.
	ByStatus map[int]int `json:"by_status"`
}

type restHandler func(w http.ResponseWriter, r *http.Request, who caller) error

// restRoute is one REST route: its method and path, the limit that it counts against, and its permissions.
type restRoute struct {
	pattern, bucket string
	kind            authKind
	handle          restHandler
}

// rest registers one REST route with everything that surrounds it: faults, authentication, limits, counting.
func (s *Server) rest(mux *http.ServeMux, pattern, bucket string, kind authKind, handle restHandler) {
	route := restRoute{pattern: pattern, bucket: bucket, kind: kind, handle: handle}
	s.restRoutes = append(s.restRoutes, pattern)
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusRecorder{ResponseWriter: w}
		answered := false
		defer func() {
			if !answered {
				recorder.status = 0
			}
			s.count(pattern, recorder.status)
		}()
		answered = s.serveREST(recorder, r, route)
	})
}

// serveREST reports whether the call was answered: one whose client has disconnected is not.
func (s *Server) serveREST(w http.ResponseWriter, r *http.Request, route restRoute) bool {
	h := w.Header()
	h.Set("X-GitHub-Request-Id", s.token(""))
	h.Set("X-GitHub-Media-Type", "github.v3; format=json")
	h.Set("Date", s.now().UTC().Format(http.TimeFormat)) // by its own clock, which a caller's may differ from
	who, failed := s.authenticate(r, route.kind)
	about := s.restSubject(r, who, route)
	if failed == nil {
		failed = s.admitCall(h, r, who, about)
	}
	if failed == nil {
		failed = s.faultyCall(h, who, about)
	}
	if failed != nil {
		writeError(w, failed)
		return true
	}
	if f, ok := s.faults.take(FaultRESTLatency, about); ok && !s.pause(r, time.Duration(f.Delay)) {
		return false
	}
	if _, ok := s.faults.take(FaultRESTCutBefore, about); ok {
		panic(http.ErrAbortHandler)
	}
	if _, ok := s.faults.take(FaultRESTCut, about); ok {
		// It takes effect, but sends no answer: the connection breaks instead.
		if err := route.handle(&discardWriter{header: http.Header{}}, r, who); err != nil {
			s.log.Debug("a call whose answer is lost failed", "route", route.pattern, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	s.answer(w, r, who, route)
	return true
}

// answer calls the handler. The response to a GET carries an ETag; a client that has it already gets a 304, which does not count.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, who caller, route restRoute) {
	if r.Method != http.MethodGet {
		if err := route.handle(w, r, who); err != nil {
			writeError(w, err)
		}
		return
	}
	held := &heldWriter{header: w.Header(), status: http.StatusOK}
	if err := route.handle(held, r, who); err != nil {
		writeError(held, err)
	}
	if held.status == http.StatusOK && route.pattern != patternRateLimit {
		sum := sha256.Sum256(held.body.Bytes())
		tag := `W/"` + hex.EncodeToString(sum[:]) + `"`
		held.header.Set("ETag", tag)
		held.header.Set("Cache-Control", "private, max-age=60, s-maxage=60")
		held.header.Set("Vary", "Accept, Authorization, Cookie, X-GitHub-OTP")
		if sameTag(r.Header.Get("If-None-Match"), tag) {
			s.mu.Lock()
			s.refundLocked(held.header, who.name(s.opts.AppID), route.bucket)
			s.mu.Unlock()
			held.header.Del("Content-Type")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	w.WriteHeader(held.status)
	_, _ = w.Write(held.body.Bytes()) // the reader may be gone
}

// sameTag compares as If-None-Match demands: weakly, with any of a list.
func sameTag(header, tag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

// admitCall refuses what GitHub would refuse before it reads the call: a token that has ended, a suspended
// installation, an empty bucket.
func (s *Server) admitCall(h http.Header, r *http.Request, who caller, about subject) *apiError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !who.isApp() {
		if _, strikes := s.faults.take(FaultTokens, about); strikes {
			delete(s.appTokens, bearer(r))
			delete(s.people, bearer(r))
			delete(s.registrations, remoteAuth(r))
			return badCredentials()
		}
	}
	if who.installation() != 0 && !who.account.suspendedAt.IsZero() {
		return suspended()
	}
	return s.meterLocked(h, who.name(s.opts.AppID), r.Method, limited(who, about))
}

// faultyCall is what a fault answers to a REST call instead of the handler.
func (s *Server) faultyCall(h http.Header, who caller, about subject) *apiError {
	if !who.isApp() { // permissions are an installation's: the App itself may always ask for a token
		if _, ok := s.faults.take(FaultForbidden, about); ok {
			return &apiError{
				status: http.StatusForbidden, Message: "Resource not accessible by integration", DocumentationURL: docsRoot + "/rest",
			}
		}
		if _, ok := s.faults.take(FaultMissing, about); ok {
			return notFound()
		}
	}
	if f, ok := s.faults.take(FaultRateSecondary, limited(who, about)); ok {
		return secondaryLimit(h, f.statusOr(http.StatusForbidden), f.delayOr(time.Minute))
	}
	return s.faultyAnswer(h, about)
}

// limited is whose limit a call counts against: the App's when it asks for an installation's token.
func limited(who caller, about subject) subject {
	if who.isApp() {
		about.installation = 0
	}
	return about
}

// faultyAnswer is what the rest-status fault answers to any call.
func (s *Server) faultyAnswer(h http.Header, about subject) *apiError {
	if f, ok := s.faults.take(FaultRESTStatus, about); ok {
		return refusal(h, f)
	}
	return nil
}

// refusal answers as the rest-status fault says.
func refusal(h http.Header, f Fault) *apiError {
	if f.Status == http.StatusForbidden || f.Status == http.StatusTooManyRequests {
		return secondaryLimit(h, f.Status, time.Duration(f.Delay))
	}
	return failf(f.Status, "%s", http.StatusText(f.Status))
}

func secondaryLimit(h http.Header, status int, wait time.Duration) *apiError {
	h.Set("Retry-After", retryAfter(wait))
	return &apiError{
		status: status, Message: "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
		DocumentationURL: docsRoot + "/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits",
	}
}

// restSubject says what a call is about, as far as a fault could ask: its scope, and the runner or job that it names.
// For a mint it is the job that it is probably for.
func (s *Server) restSubject(r *http.Request, who caller, route restRoute) subject {
	about := subject{route: route.pattern, bucket: route.bucket}
	if s.faults.none() {
		return about
	}
	var mint jitRequest
	if strings.HasSuffix(route.pattern, "/generate-jitconfig") {
		mint = peekMint(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id, _ := pathID(r, "id")
	var found subject
	switch {
	case who.isApp() && strings.Contains(route.pattern, "/app/installations/{id}"):
		found.installation = id
	case who.isApp():
	case strings.Contains(route.pattern, "/actions/runners/{id}"):
		if rn := s.runners[id]; rn != nil {
			found = runnerSubjectLocked(rn)
		}
	case strings.Contains(route.pattern, "/actions/jobs/{id}"):
		if j := s.jobs[id]; j != nil {
			found = jobSubject(j)
		}
	case mint.Name != "":
		if sc, err := s.scopeLocked(r, who); err == nil {
			group := int64(defaultPoolID)
			if mint.RunnerGroupID != nil {
				group = *mint.RunnerGroupID
			}
			if j := s.mintedForLocked(sc, group, newLabelSet(mint.Labels)); j != nil {
				found = jobSubject(j)
			}
			found.runner = mint.Name
		}
	}
	about.job, about.run, about.runner, about.installation = found.job, found.run, found.runner, found.installation
	if !who.isApp() {
		about.installation = who.installation()
	}
	about.scope = strings.Trim(r.PathValue("login")+"/"+r.PathValue("repo"), "/")
	if slug := r.PathValue("enterprise"); slug != "" {
		about.scope = enterpriseLogin(slug)
	}
	return about
}

// peekMint reads a mint's body and puts it back. The handler refuses an unreadable body.
func peekMint(r *http.Request) (mint jitRequest) {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	rest := r.Body
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), rest), rest}
	if err == nil {
		_ = json.Unmarshal(data, &mint)
	}
	return mint
}

// pause waits, and reports whether the caller is still there afterwards.
func (s *Server) pause(r *http.Request, d time.Duration) bool {
	select {
	case <-s.opts.After(d):
		return true
	case <-r.Context().Done():
		return false
	case <-s.closing:
		return false
	}
}

func (s *Server) count(route string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[route]
	if c == nil {
		c = &RouteCalls{ByStatus: map[int]int{}}
		s.calls[route] = c
	}
	c.Calls++
	c.ByStatus[status]++
}

type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *statusRecorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// heldWriter keeps an answer until its ETag is known.
type heldWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *heldWriter) Header() http.Header         { return h.header }
func (h *heldWriter) WriteHeader(status int)      { h.status = status }
func (h *heldWriter) Write(p []byte) (int, error) { return h.body.Write(p) }

type discardWriter struct{ header http.Header }

func (d *discardWriter) Header() http.Header         { return d.header }
func (d *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (d *discardWriter) WriteHeader(int)             {}
