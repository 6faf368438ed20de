package github

import (
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func dated(at time.Time) http.Header {
	return http.Header{"Date": {at.UTC().Format(http.TimeFormat)}}
}

func TestRemoteClock_R13_MovesNoFurtherThanAnAnswerProves(t *testing.T) {
	host := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	var log strings.Builder
	c := newRemoteClock(func() time.Time { return host }, slog.New(slog.NewTextHandler(&log, nil)))
	ahead := func() time.Duration { return c.now().Sub(host) }
	learn := func(header http.Header, sent, received time.Duration) {
		c.learn(t.Context(), header, host.Add(sent), host.Add(received))
	}
	learn(dated(host), 0, 0)
	require.Zero(t, ahead(), "the clocks agree")
	learn(dated(host.Add(2*time.Second)), 0, 10*time.Second)
	require.Zero(t, ahead(), "a slow answer proves no difference")
	learn(dated(host.Add(5*time.Minute)), 0, time.Second)
	require.InDelta(t, 5*time.Minute, ahead(), float64(2*time.Second))
	before := ahead()
	learn(dated(host.Add(5*time.Minute)), 0, 8*time.Second)
	require.Equal(t, before, ahead(), "what is known agrees with it")
	require.Equal(t, 1, strings.Count(log.String(), "differ"))
	learn(dated(host.Add(-10*time.Minute)), 0, 0)
	require.InDelta(t, -10*time.Minute, ahead(), float64(2*time.Second))
	require.Equal(t, 2, strings.Count(log.String(), "differ"))

	before = ahead()
	cached := dated(host)
	cached.Set("Age", "600")
	learn(cached, 0, 0)
	learn(http.Header{}, 0, 0)
	learn(http.Header{"Date": {"yesterday"}}, 0, 0)
	require.Equal(t, before, ahead(), "a cache's date, or none, says nothing")

	issued, ends := c.life()
	require.Equal(t, c.now().Add(-time.Minute).Truncate(time.Second), issued)
	require.LessOrEqual(t, ends.Sub(issued), 10*time.Minute)
	require.True(t, ends.After(c.now()))
}

// A refusal for another reason is not repeated, and a repeated refusal is repeated once.
func TestClient_R13_ARefusalIsRepeatedOnceAndOnlyForTheClock(t *testing.T) {
	for by, want := range map[time.Duration]int64{0: 1, 10 * time.Minute: 2, -10 * time.Minute: 2} {
		f := newForge(t, status(http.StatusUnauthorized, `{}`))
		client := newTestClient(t, f, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(by) } })
		_, err := client.App(t.Context())
		require.ErrorIs(t, err, ErrKeyRefused)
		require.Equal(t, want, f.calls.Load(), by)
	}
}

// The body of a repeated request is the whole body.
func TestClocked_R13_ABodyIsSentAgain(t *testing.T) {
	var bodies atomic.Int64
	f := newForge(t, status(http.StatusOK, `{}`))
	f.token = func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 0 {
			bodies.Add(1)
		}
		w.WriteHeader(http.StatusUnauthorized)
	}
	client := newTestClient(t, f, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Hour) } })
	require.ErrorIs(t, client.ControlRead(t.Context(), 42, org), ErrUnauthorized)
	require.Positive(t, bodies.Load())
	require.Zero(t, bodies.Load()%2, "each was sent twice")
}
