package http

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// readyFor is how long a result of Options.Ready is used: any client can ask, and each check takes a database connection (TEN-3).
	readyFor     = time.Second
	readyTimeout = 3 * time.Second
)

// readiness checks at most once in readyFor, and never twice at a time. It is safe for concurrent use.
type readiness struct {
	check func(ctx context.Context) error
	now   func() time.Time

	mu  sync.Mutex
	at  time.Time // of the last result
	err error
}

// ask waits for a check that is in progress, and uses its result.
func (r *readiness) ask(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age := r.now().Sub(r.at); age >= 0 && age < readyFor {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout) // the result is for others, too
	defer cancel()
	r.err = r.check(ctx)
	r.at = r.now()
	return r.err
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if err := s.ready.ask(r.Context()); err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	w.WriteHeader(http.StatusOK)
}
