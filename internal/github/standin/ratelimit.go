package standin

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	bucketCore         = "core"
	bucketRegistration = "actions_runner_registration"
)

// window is one rate-limit window of one installation.
type window struct {
	used  int
	reset time.Time
}

// meterLocked charges a REST call to its buckets, writes the headers, and reports a refusal.
func (s *Server) meterLocked(h http.Header, principal, bucket, route, method string) *apiError {
	limit := s.opts.Core
	if bucket == bucketRegistration {
		limit = s.opts.Registration
	}
	now := s.now()
	if limit.Limit > 0 {
		w := s.windowLocked(principal+"\x00"+bucket, limit.Window, now)
		w.used++
		h.Set("X-RateLimit-Limit", strconv.Itoa(limit.Limit))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(max(0, limit.Limit-w.used)))
		h.Set("X-RateLimit-Used", strconv.Itoa(min(w.used, limit.Limit)))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(w.reset.Unix(), 10))
		h.Set("X-RateLimit-Resource", bucket)
		if w.used > limit.Limit {
			h.Set("Retry-After", strconv.Itoa(secondsUntil(w.reset, now)))
			return &apiError{
				status: http.StatusForbidden, Message: "API rate limit exceeded for " + principal + ".",
				DocumentationURL: docsRoot + "/rest/using-the-rest-api/rate-limits-for-the-rest-api",
			}
		}
	}
	if s.opts.SecondaryPoints <= 0 {
		return nil
	}
	w := s.windowLocked(principal+"\x00"+route, time.Minute, now)
	w.used++
	if method != http.MethodGet {
		w.used += 4
	}
	if w.used <= s.opts.SecondaryPoints {
		return nil
	}
	h.Set("Retry-After", strconv.Itoa(secondsUntil(w.reset, now)))
	return &apiError{
		status:           http.StatusForbidden,
		Message:          "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
		DocumentationURL: docsRoot + "/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits",
	}
}

func (s *Server) windowLocked(key string, length time.Duration, now time.Time) *window {
	w := s.windows[key]
	if w == nil || !now.Before(w.reset) {
		w = &window{reset: now.Add(length)}
		s.windows[key] = w
	}
	return w
}

func secondsUntil(at, now time.Time) int {
	return max(1, int((at.Sub(now)+time.Second-1)/time.Second))
}

func principalName(kind string, id int64) string { return fmt.Sprintf("%s ID %d", kind, id) }
