package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/history"
	"github.com/bullpen-ci/bullpen/test/kit/apicontract"
)

// archive has samples of the fleet and of one pool, and counts its readings.
type archive struct {
	oracle
	samples map[history.Pool][]history.Sample
	read    int
}

func (a *archive) Samples(_ context.Context, pool history.Pool, _, _ time.Time) ([]history.Sample, error) {
	a.read++
	return a.samples[pool], nil
}

func (a *archive) DescribePools() []adminapi.Pool {
	return []adminapi.Pool{{Namespace: "runners", Name: "new"}}
}

// A history has each step of its window, with quantiles where jobs began and numbers where samples were taken. It is kept for seconds.
func TestHistory_IsASeriesAndKeptForAMoment(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 7, 0, 0, time.UTC)
	gone := history.Pool{Namespace: "runners", Name: "gone"}
	store := &archive{oracle: oracle{yes: true}, samples: map[history.Pool][]history.Sample{
		{}:   {{At: now.Add(-time.Hour), Span: history.FineSpan, Minutes: 1, Sum: history.Gauges{Queued: 3, Busy: 2, Capacity: 8}, PeakQueued: 3, PeakBusy: 2}},
		gone: {{At: now.Add(-time.Hour), Span: history.FineSpan, QueueTimes: history.Histogram{}.With(history.Bucket(10), 7)}},
	}}
	api, err := New(Options{Store: store, Access: store, Fleet: store, Now: func() time.Time { return now }})
	require.NoError(t, err)
	handler := apicontract.Checked(t, api.Handler())
	ask := func(path string) (h adminapi.History, status int) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		r.Header.Set("Authorization", "Bearer x")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &h))
		return h, w.Code
	}
	fleet, status := ask("/api/v1/history")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, adminapi.History24Hours, fleet.Window)
	require.Len(t, fleet.Points, 96)
	require.Equal(t, []time.Time{now.Add(8*time.Minute - 24*time.Hour), now.Add(8 * time.Minute)}, []time.Time{fleet.From, fleet.To})
	require.Equal(t, adminapi.HistoryPoint{
		At: time.Date(2026, 11, 26, 11, 0, 0, 0, time.UTC), SampledMinutes: 1, Queued: 3, PeakQueued: 3, Busy: 2, PeakBusy: 2, Capacity: 8,
	}, fleet.Points[91])
	require.Zero(t, fleet.Points[90].SampledMinutes)

	long, status := ask("/api/v1/history?window=14d")
	require.Equal(t, http.StatusOK, status)
	require.Len(t, long.Points, 84)
	require.EqualValues(t, 4*3600, long.StepSeconds)

	of, status := ask("/api/v1/pools/runners/gone/history")
	require.Equal(t, http.StatusOK, status, "its samples are kept")
	require.EqualValues(t, 7, of.Points[91].StartedJobs)
	require.InDelta(t, 10, *of.Points[91].QueueTimeP50, 3)
	require.Less(t, *of.Points[91].QueueTimeP50, *of.Points[91].QueueTimeP95)
	require.Nil(t, of.Points[90].QueueTimeP95)
	_, status = ask("/api/v1/pools/runners/new/history")
	require.Equal(t, http.StatusOK, status, "it has none yet")
	_, status = ask("/api/v1/pools/runners/never/history")
	require.Equal(t, http.StatusNotFound, status)
	_, status = ask("/api/v1/history?window=1y")
	require.Equal(t, http.StatusBadRequest, status)

	before := store.read
	_, _ = ask("/api/v1/history")
	require.Equal(t, before, store.read)
	now = now.Add(historyKept)
	_, _ = ask("/api/v1/history")
	require.Equal(t, before+1, store.read)
	require.Len(t, api.histories.answers, 1, "what is old is dropped")
	now = now.Add(-time.Hour) // a clock that was set back
	_, _ = ask("/api/v1/history")
	require.Equal(t, before+2, store.read)
}
