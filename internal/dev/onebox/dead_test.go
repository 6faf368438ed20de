package onebox

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

// Jobs that ran when the last run ended fail at once. One that this run has started, or that is queued, is not touched.
func TestFailDead_FailsWhatRanBefore(t *testing.T) {
	began := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	before, since := began.Add(-time.Minute), began.Add(time.Second)
	jobs := []standin.JobView{
		{ID: 1, Status: "in_progress", StartedAt: &before},
		{ID: 2, Status: "in_progress", StartedAt: &since},
		{ID: 3, Status: "queued"},
		{ID: 4, Status: "completed", StartedAt: &before},
		{ID: 5, Status: "in_progress", StartedAt: &before}, // completes before the request
		{ID: 6, Status: "in_progress", StartedAt: &before},
	}
	var lost []string
	status := map[string]int{"/_standin/jobs/5/lose": http.StatusConflict}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lost = append(lost, r.Method+" "+r.URL.Path)
		if code := status[r.URL.Path]; code != 0 {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(map[string]string{"message": "no"})
		}
	}))
	defer server.Close()
	github := &standin.AdminClient{URL: server.URL, HTTP: server.Client()}
	dead, err := failDead(t.Context(), github, jobs, began)
	require.NoError(t, err)
	require.Equal(t, 2, dead)
	require.Equal(t, []string{"POST /_standin/jobs/1/lose", "POST /_standin/jobs/5/lose", "POST /_standin/jobs/6/lose"}, lost)
	status["/_standin/jobs/1/lose"] = http.StatusInternalServerError
	_, err = failDead(t.Context(), github, jobs, began)
	require.ErrorContains(t, err, "failing job 1 of an earlier run")
}

func TestResuming(t *testing.T) {
	require.Equal(t, "resuming 1 unfinished job of earlier runs", resuming(1, 0))
	require.Equal(t, "resuming 3 unfinished jobs of earlier runs; 2 running jobs of earlier runs failed, because their runners were stopped", resuming(5, 2))
	require.Equal(t, "1 running job of earlier runs failed, because their runners were stopped", resuming(1, 1))
}
