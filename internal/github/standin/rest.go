package standin

import (
	"net/http"
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

// rest registers one REST route with everything that surrounds it: faults, authentication, limits, counting.
func (s *Server) rest(mux *http.ServeMux, pattern, bucket string, kind authKind, handle restHandler) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusRecorder{ResponseWriter: w}
		answered := false
		defer func() {
			if !answered {
				recorder.status = 0
			}
			s.count(pattern, recorder.status)
		}()
		matches := func(f Fault) bool { return f.matchesRoute(pattern) }
		if f, ok := s.faults.take(faultRESTLatency, matches); ok && !s.pause(r, time.Duration(f.Delay)) {
			return
		}
		s.serveREST(recorder, r, pattern, bucket, kind, handle)
		answered = true
	})
}

func (s *Server) serveREST(w http.ResponseWriter, r *http.Request, pattern, bucket string, kind authKind, handle restHandler) {
	h := w.Header()
	h.Set("X-GitHub-Request-Id", s.token(""))
	h.Set("X-GitHub-Media-Type", "github.v3; format=json")
	who, failed := s.authenticate(r, kind)
	if failed == nil {
		s.mu.Lock()
		failed = s.meterLocked(h, who.name(s.opts.AppID), bucket, pattern, r.Method)
		s.mu.Unlock()
	}
	if failed != nil {
		writeError(w, failed)
		return
	}
	matches := func(f Fault) bool { return f.matchesRoute(pattern) }
	if f, ok := s.faults.take(faultRESTStatus, matches); ok {
		s.refuse(w, f)
		return
	}
	if _, ok := s.faults.take(faultRESTCut, matches); ok {
		// It happens, but nobody is told: the connection breaks instead.
		if err := handle(&discardWriter{header: http.Header{}}, r, who); err != nil {
			s.log.Debug("a call whose answer is lost failed", "route", pattern, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	if err := handle(w, r, who); err != nil {
		writeError(w, err)
	}
}

// refuse answers as the rest-status fault says.
func (s *Server) refuse(w http.ResponseWriter, f Fault) {
	e := failf(f.Status, "%s", http.StatusText(f.Status))
	if f.Status == http.StatusForbidden || f.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", retryAfter(f))
		e.Message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
		e.DocumentationURL = docsRoot + "/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"
	}
	writeError(w, e)
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

type discardWriter struct{ header http.Header }

func (d *discardWriter) Header() http.Header         { return d.header }
func (d *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (d *discardWriter) WriteHeader(int)             {}
