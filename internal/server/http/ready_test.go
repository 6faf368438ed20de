package http

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// TEN-3: however many clients ask whether the server is ready, the database is asked once a second.
func TestReadyz_TEN3_ManyRequestsAreOneCheck(t *testing.T) {
	var now atomic.Pointer[time.Time]
	start := time.Now()
	now.Store(&start)
	began, finish := make(chan struct{}, 1000), make(chan error)
	ready := &readiness{now: func() time.Time { return *now.Load() }, check: func(context.Context) error {
		began <- struct{}{}
		select {
		case result := <-finish:
			return result
		case <-t.Context().Done():
			return t.Context().Err()
		}
	}}
	s := &Server{ready: ready}
	for _, c := range []struct {
		result error
		want   int
	}{{nil, http.StatusOK}, {errors.New("the database does not answer"), http.StatusServiceUnavailable}} {
		var all sync.WaitGroup
		var statuses sync.Map
		for i := range 1000 {
			all.Go(func() {
				w := httptest.NewRecorder()
				s.readyz(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
				statuses.Store(i, w.Code)
			})
		}
		await.Receive(t, began, "the database is asked")
		select {
		case finish <- c.result:
		case <-await.Context(t).Done():
			require.Fail(t, "the check has returned already")
		}
		await.Return(t, all.Wait, "all are answered")
		require.Empty(t, began, "it is asked once")
		statuses.Range(func(_, status any) bool { require.Equal(t, c.want, status); return true })
		later := now.Load().Add(readyFor)
		now.Store(&later)
	}
}

// A client that has gone must not make the server unready for the others.
func TestReadyz_IsNotOfOneClient(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ready := &readiness{now: time.Now, check: func(ctx context.Context) error { return ctx.Err() }}
	require.NoError(t, ready.ask(ctx))
}
