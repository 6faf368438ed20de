package github

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// runnerList serves that many runners (r1, r2, …) in pages, with or without the name filter.
func runnerList(count int, filters bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		perPage, _ := strconv.Atoi(r.URL.Query().Get("per_page"))
		page := max(1, atoi(r.URL.Query().Get("page")))
		var all []string
		for i := 1; i <= count; i++ {
			name := fmt.Sprintf("r%d", i)
			if want := r.URL.Query().Get("name"); filters && want != "" && want != name {
				continue
			}
			all = append(all, fmt.Sprintf(`{"id":%d,"name":%q,"status":"online","busy":%t}`, i, name, i%2 == 0))
		}
		from, to := min(len(all), (page-1)*perPage), min(len(all), page*perPage)
		if to < len(all) {
			w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?page=%d>; rel="next"`, r.Host, r.URL.Path, page+1))
		}
		_, _ = fmt.Fprintf(w, `{"total_count":%d,"runners":[%s]}`, len(all), strings.Join(all[from:to], ","))
	}
}

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// EXCL-6: a list that cannot be read does not lack a runner.
func TestFindRunner_EXCL6_ByWholeName(t *testing.T) {
	for _, filters := range []bool{true, false} {
		t.Run(fmt.Sprintf("server filters %t", filters), func(t *testing.T) {
			client := newTestClient(t, newForge(t, runnerList(250, filters)), nil)
			found, err := client.FindRunner(t.Context(), 42, org, "r242")
			require.NoError(t, err)
			require.Equal(t, fleet.Registration{ID: 242, Name: "r242", Online: true, Busy: true}, found)
			_, err = client.FindRunner(t.Context(), 42, repo, "r24x")
			require.ErrorIs(t, err, ErrAbsent)
			require.ErrorIs(t, err, fleet.ErrNotFound)
		})
	}
	client := newTestClient(t, newForge(t, status(404, `{}`)), nil)
	_, err := client.FindRunner(t.Context(), 42, org, "r1")
	require.ErrorIs(t, err, fleet.ErrUncertain)
	require.NotErrorIs(t, err, fleet.ErrNotFound, "a scope that cannot be read proves nothing")
}

func TestListRunners_AllPages(t *testing.T) {
	f := newForge(t, runnerList(201, true))
	client := newTestClient(t, f, nil)
	var ids []int64
	require.NoError(t, client.ListRunners(t.Context(), 42, org, func(r fleet.Registration) bool {
		ids = append(ids, r.ID)
		return true
	}))
	require.Len(t, ids, 201)
	require.Equal(t, int64(3), f.calls.Load())
	require.NoError(t, client.ListRunners(t.Context(), 42, org, func(fleet.Registration) bool { return false }))
	require.Equal(t, int64(4), f.calls.Load())
}

func TestListRunners_AnEmptyBodyIsNotAnEmptyList(t *testing.T) {
	for _, body := range []string{``, `null`, `{}`} {
		client := newTestClient(t, newForge(t, status(200, body)), nil)
		require.ErrorIs(t, client.ControlRead(t.Context(), 42, org), fleet.ErrUncertain)
		_, err := client.FindRunner(t.Context(), 42, org, "r1")
		require.ErrorIs(t, err, fleet.ErrUncertain)
	}
}

func TestRunner_ReadsOne(t *testing.T) {
	for scope, path := range map[fleet.Scope]string{
		org: "/api/v3/orgs/acme/actions/runners/23", repo: "/api/v3/repos/acme/app/actions/runners/23",
	} {
		f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			if r.Method == http.MethodDelete {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			_, _ = io.WriteString(w, `{"id":23,"name":"n","status":"offline","busy":true}`)
		})
		client := newTestClient(t, f, nil)
		got, err := client.Runner(t.Context(), 42, scope, 23)
		require.NoError(t, err)
		require.Equal(t, fleet.Registration{ID: 23, Name: "n", Busy: true}, got)
		require.NoError(t, client.RemoveRunner(t.Context(), 42, scope, 23))
	}
	client := newTestClient(t, newForge(t, status(200, `{}`)), nil)
	_, err := client.Runner(t.Context(), 42, org, 23)
	require.ErrorIs(t, err, fleet.ErrUncertain)
}

func TestScope_CannotChangeThePath(t *testing.T) {
	f := newForge(t, status(204, ``))
	client := newTestClient(t, f, nil)
	for _, scope := range []fleet.Scope{
		{}, {Owner: ".."}, {Owner: "a/b"}, {Owner: "a?b"}, {Owner: "a", Repo: "../../app"}, {Owner: "a", Repo: "."},
	} {
		require.ErrorIs(t, client.RemoveRunner(t.Context(), 42, scope, 5), fleet.ErrRejected)
	}
	_, err := client.Job(t.Context(), 42, fleet.Repository{Name: "acme"}, 5)
	require.ErrorIs(t, err, fleet.ErrRejected)
	require.Error(t, client.ControlRead(t.Context(), 0, org))
	require.Zero(t, f.calls.Load())
	require.Zero(t, f.tokens.Load())
}

func TestJob_Reads(t *testing.T) {
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v3/repos/acme/app/actions/jobs/81" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_, _ = io.WriteString(w, `{"id":81,"run_id":9,"run_attempt":1,"status":"completed","conclusion":"success",
			"runner_id":23,"runner_name":"bp-x-1","labels":["l"],"completed_at":"2026-01-02T03:04:05Z"}`)
	})
	job, err := newTestClient(t, f, nil).Job(t.Context(), 42, fleet.Repository{Name: "acme/app"}, 81)
	require.NoError(t, err)
	require.Equal(t, WorkflowJob{
		ID: 81, RunID: 9, RunAttempt: 1, Status: "completed", Conclusion: "success", RunnerID: 23, RunnerName: "bp-x-1",
		Labels: []string{"l"}, CompletedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}, job)
}

func TestDeliveryPage_OnlyWhatHasChanged(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var bearer atomic.Bool
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		bearer.Store(strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ey"))
		switch {
		case r.URL.Path != "/api/v3/app/hook/deliveries":
			w.WriteHeader(http.StatusTeapot)
			return
		case r.URL.Query().Get("cursor") == "v1_7":
			_, _ = io.WriteString(w, `[]`)
			return
		}
		w.Header().Set("ETag", `W/"one"`)
		if r.Header.Get("If-None-Match") == `W/"one"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?cursor=v1_7>; rel="next"`, r.Host, r.URL.Path))
		_, _ = fmt.Fprintf(w, `[{"id":1,"guid":"g\u00001","delivered_at":%q,"status_code":500,"event":"workflow_job",
			"action":"queued","installation_id":42,"repository_id":7,"redelivery":true}]`, at.Format(time.RFC3339))
	})
	client := newTestClient(t, f, nil)
	page, err := client.DeliveryPage(t.Context(), "", "")
	require.NoError(t, err)
	require.True(t, bearer.Load(), "deliveries are the App's own")
	require.Equal(t, DeliveryPage{Next: "v1_7", ETag: `W/"one"`, Deliveries: []Delivery{{
		ID: 1, GUID: "g\uFFFD1", Event: "workflow_job", Action: "queued", DeliveredAt: at, Redelivery: true,
		StatusCode: 500, InstallationID: 42, RepositoryID: 7,
	}}}, page)
	page, err = client.DeliveryPage(t.Context(), "", page.ETag)
	require.NoError(t, err)
	require.Equal(t, DeliveryPage{Unchanged: true}, page)
	page, err = client.DeliveryPage(t.Context(), "v1_7", "")
	require.NoError(t, err)
	require.Equal(t, DeliveryPage{}, page)
}

func TestPayload_IsTheOneThatWasAskedFor(t *testing.T) {
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v3/app/hook/deliveries/9":
			_, _ = io.WriteString(w, `{"id":9,"guid":"g9","event":"ping","request":{"headers":{"X-GitHub-Event":"ping"},"payload":{"zen":"x"}}}`)
		case "/api/v3/app/hook/deliveries/10":
			_, _ = io.WriteString(w, `{"id":9,"guid":"g9","event":"ping","request":{"payload":{}}}`)
		case "/api/v3/app/hook/deliveries/11":
			_, _ = io.WriteString(w, `{"id":11,"guid":"g11","event":"ping"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	client := newTestClient(t, f, nil)
	got, err := client.Payload(t.Context(), 9)
	require.NoError(t, err)
	require.Equal(t, Payload{GUID: "g9", Event: "ping", Body: []byte(`{"zen":"x"}`)}, got)
	for id, want := range map[int64]error{10: fleet.ErrUncertain, 11: fleet.ErrUncertain, 12: fleet.ErrNotFound} {
		_, err = client.Payload(t.Context(), id)
		require.ErrorIs(t, err, want)
	}
}

func TestRuns_PagesAndTheirJobs(t *testing.T) {
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch r.URL.Path {
		case "/api/v3/repos/acme/app/actions/runs":
			if query.Get("status") != "queued" || query.Get("page") == "2" {
				_, _ = io.WriteString(w, `{}`)
				return
			}
			w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?page=2>; rel="next"`, r.Host, r.URL.Path))
			_, _ = io.WriteString(w, `{"total_count":101,"workflow_runs":[{"id":9,"run_attempt":2,"status":"queued","created_at":"2026-01-02T03:04:05Z"}]}`)
		case "/api/v3/repos/acme/app/actions/runs/9/jobs":
			if query.Get("filter") != "latest" {
				w.WriteHeader(http.StatusTeapot)
			}
			_, _ = io.WriteString(w, `{"total_count":1,"jobs":[{"id":81,"run_id":9,"status":"queued","labels":["linux"]}]}`)
		case "/api/v3/repos/acme/app/actions/runs/9":
			_, _ = io.WriteString(w, `{"id":9,"status":"completed"}`)
		case "/api/v3/repos/acme/app/actions/jobs/81/rerun":
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{}`)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	})
	client := newTestClient(t, f, nil)
	runs, next, err := client.Runs(t.Context(), 42, "acme/app", RunQueued, 1)
	require.NoError(t, err)
	require.Equal(t, 2, next)
	require.Equal(t, []Run{{ID: 9, Attempt: 2, Status: "queued", CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}, runs)
	_, _, err = client.Runs(t.Context(), 42, "acme/app", RunQueued, 2)
	require.ErrorIs(t, err, fleet.ErrUncertain, "no list is not an empty one")
	require.ErrorIs(t, client.ReadRuns(t.Context(), 42, fleet.Repository{Name: "acme/app"}), fleet.ErrUncertain)
	jobs, next, err := client.RunJobs(t.Context(), 42, "acme/app", 9, 0)
	require.NoError(t, err)
	require.Zero(t, next)
	require.Equal(t, []WorkflowJob{{ID: 81, RunID: 9, Status: "queued", Labels: []string{"linux"}}}, jobs)
	one, err := client.Run(t.Context(), 42, "acme/app", 9)
	require.NoError(t, err)
	require.Equal(t, RunCompleted, one.Status)
	require.NoError(t, client.RerunJob(t.Context(), 42, "acme/app", 81))
	require.ErrorIs(t, client.RerunJob(t.Context(), 42, "acme/app", 82), fleet.ErrForbidden)
	for _, bad := range []string{"acme", "acme/../x", "acme/app/more", ""} {
		_, _, err = client.Runs(t.Context(), 42, bad, RunQueued, 1)
		require.ErrorIs(t, err, fleet.ErrRejected)
		require.ErrorIs(t, client.RerunJob(t.Context(), 42, bad, 81), fleet.ErrRejected)
		require.ErrorIs(t, client.RerunFailedJobs(t.Context(), 42, bad, 9), fleet.ErrRejected)
	}
}

func TestRedeliver_AcceptedIsYes(t *testing.T) {
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/api/v3/app/hook/deliveries/9/attempts" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{}`)
	})
	require.NoError(t, newTestClient(t, f, nil).Redeliver(t.Context(), 9))
	require.ErrorIs(t, newTestClient(t, f, nil).Redeliver(t.Context(), 10), fleet.ErrRejected)
}

func TestInstallations_AllPages(t *testing.T) {
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		page := max(1, atoi(r.URL.Query().Get("page")))
		if page < 3 {
			w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?page=%d>; rel="next"`, r.Host, r.URL.Path, page+1))
		}
		_, _ = fmt.Fprintf(w, `[{"id":%d,"account":{"id":5,"login":"acme","type":"Organization"},"suspended_at":null}]`, page)
	})
	all, err := newTestClient(t, f, nil).Installations(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, Installation{ID: 3, Account: Account{ID: 5, Login: "acme", Type: "Organization"}}, all[2])
}
