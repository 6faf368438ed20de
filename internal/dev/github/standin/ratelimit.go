package standin

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	bucketNone         = "" // asking for one's limits is free
	bucketCore         = "core"
	bucketRegistration = "actions_runner_registration"
)

// window is one rate-limit window of one installation.
type window struct {
	used    int
	reset   time.Time
	emptied int // what a fault says that calls are answered with until the reset; 0: no fault emptied it
}

// meterLocked charges a REST call to its buckets, writes the headers, and reports a refusal.
func (s *Server) meterLocked(h http.Header, principal, method string, about subject) *apiError {
	if about.bucket == bucketNone {
		return nil
	}
	now := s.now()
	limit := s.bucketLimit(about.bucket)
	key := principal + "\x00" + about.bucket
	if f, ok := s.faults.take(FaultRateEmpty, about); ok {
		w := s.windowLocked(key, limit.Window, now)
		w.used, w.emptied = limit.Limit, f.statusOr(http.StatusForbidden)
		if f.Delay > 0 {
			w.reset = now.Add(time.Duration(f.Delay))
		}
	}
	if w := s.windows[key]; limit.Limit > 0 || (w != nil && w.emptied != 0 && now.Before(w.reset)) {
		w = s.windowLocked(key, limit.Window, now)
		w.used++
		showBucket(h, about.bucket, limit.Limit, w)
		if w.used > limit.Limit {
			h.Set("Retry-After", strconv.Itoa(secondsUntil(w.reset, now)))
			status := http.StatusForbidden
			if w.emptied != 0 {
				status = w.emptied
			}
			return &apiError{
				status: status, Message: "API rate limit exceeded for " + principal + ".",
				DocumentationURL: docsRoot + "/rest/using-the-rest-api/rate-limits-for-the-rest-api",
			}
		}
	}
	if s.opts.SecondaryPoints <= 0 {
		return nil
	}
	w := s.windowLocked(principal+"\x00"+about.route, time.Minute, now)
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

func (s *Server) bucketLimit(bucket string) RateLimit {
	if bucket == bucketRegistration {
		return s.opts.Registration
	}
	return s.opts.Core
}

func showBucket(h http.Header, bucket string, limit int, w *window) {
	limit = max(0, limit)
	h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(max(0, limit-w.used)))
	h.Set("X-RateLimit-Used", strconv.Itoa(max(0, min(w.used, limit))))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(w.reset.Unix(), 10))
	h.Set("X-RateLimit-Resource", bucket)
}

// refundLocked gives a call back to its primary bucket: it was answered 304, which GitHub does not count.
func (s *Server) refundLocked(h http.Header, principal, bucket string) {
	limit := s.bucketLimit(bucket)
	if w := s.windows[principal+"\x00"+bucket]; w != nil && limit.Limit > 0 && w.used > 0 {
		w.used--
		showBucket(h, bucket, limit.Limit, w)
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
