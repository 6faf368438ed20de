package cli_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// states is a filter as --state makes it.
func states(t *testing.T, text string) cli.JobFilter {
	t.Helper()
	var states cli.JobStates
	require.NoError(t, states.Set(text))
	var filter cli.JobFilter
	states.Filter(&filter)
	return filter
}

func ids(jobs []adminapi.Job) []int64 {
	out := []int64{}
	for _, j := range jobs {
		out = append(out, j.ID)
	}
	return out
}

// Jobs are listed by account, repository and state, newest first, page by page; completed ones only with --completed.
func TestJobs_AreFilteredAndPaged(t *testing.T) {
	d := newDesk(t)
	d.install("created", 2, "globex")
	for id := int64(1); id <= 5; id++ {
		d.tell(fleet.JobEventQueued, id)
	}
	d.tell(fleet.JobEventQueued, 6, func(ev *dispatch.JobEvent) { ev.Repository = "acme/lib" })
	d.tell(fleet.JobEventQueued, 7, func(ev *dispatch.JobEvent) {
		ev.Account, ev.Repository = dispatch.Account{ID: 2, Login: "globex", InstallationID: 102}, "globex/app"
		ev.Name = "Release notes"
	})
	d.tell(fleet.JobEventStarted, 2)
	d.tell(fleet.JobEventCompleted, 3)
	d.repositories(dispatch.RepositoriesRemoved, "acme/lib")
	for name, c := range map[string]struct {
		filter cli.JobFilter
		want   []int64
	}{
		"what has not ended":     {cli.JobFilter{}, []int64{7, 6, 5, 4, 2, 1}},
		"all":                    {cli.JobFilter{Ended: true}, []int64{7, 6, 5, 4, 3, 2, 1}},
		"an account":             {cli.JobFilter{Account: "globex"}, []int64{7}},
		"by its id":              {cli.JobFilter{Account: "@2"}, []int64{7}},
		"a repository":           {cli.JobFilter{Repository: "Acme/Lib"}, []int64{6}},
		"a state":                {states(t, "running"), []int64{2}},
		"states":                 {states(t, "running,completed"), []int64{3, 2}},
		"queued, not blocked":    {states(t, "queued"), []int64{7, 5, 4, 1}},
		"blocked":                {states(t, "blocked"), []int64{6}},
		"of an account, all":     {cli.JobFilter{Account: "acme", Ended: true}, []int64{6, 5, 4, 3, 2, 1}},
		"a part of a repository": {cli.JobFilter{Repository: "LIB"}, []int64{6}},
		"a part of a name":       {cli.JobFilter{Name: "release"}, []int64{7}},
		"a conclusion":           {cli.JobFilter{Conclusions: []string{"success"}}, []int64{3}},
		"conclusions":            {cli.JobFilter{Conclusions: []string{"failure", "success"}, Repository: "app"}, []int64{3}},
		"of a conclusion, none":  {cli.JobFilter{Conclusions: []string{"failure"}}, []int64{}},
		"no more than are asked": {cli.JobFilter{Most: 2}, []int64{7, 6}},
		"none":                   {cli.JobFilter{Repository: "acme/none\x00"}, []int64{}},
	} {
		if c.filter.Most == 0 {
			c.filter.Most = 100
		}
		jobs, err := d.Jobs(t.Context(), c.filter)
		require.NoError(t, err, name)
		require.Equal(t, c.want, ids(jobs), name)
	}
	status, first := d.raw(http.MethodGet, "/api/v1/jobs?limit=4", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, first, `"next":4`)
	_, second := d.raw(http.MethodGet, "/api/v1/jobs?limit=4&before=4", "", "")
	require.Contains(t, second, `"id":2`)
	require.NotContains(t, second, `"id":4`)
	require.NotContains(t, second, `"next"`)

	job, err := d.Job(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, "elsewhere", job.RunnerName)
	require.Equal(t, []string{"linux-4"}, job.Labels)
	var shown bytes.Buffer
	require.NoError(t, cli.Print(&shown, cli.FormatWide, job, cli.JobTable([]adminapi.Job{job}, time.Now().Add(90*time.Second))))
	require.Contains(t, shown.String(), "acme/app")
	require.Contains(t, shown.String(), "1m30s")
	require.Regexp(t, `(?m)^ID +REPOSITORY +NAME +STATE +LABELS +POOL +RUNNER +WAITED +RAN +AGE +ACCOUNT +WORKFLOW +BRANCH +RUN +ATTEMPT +BLOCKED BY +URL$`, shown.String())
	require.Regexp(t, `(?m)^2 +acme/app +\S+ +running +linux-4 +- +elsewhere +1m00s +1m30s +2m30s `, shown.String(), "whole seconds, as GitHub gives them")
}

// Bad input is one sentence that says what to do.
func TestJobs_BadInput(t *testing.T) {
	d := newDesk(t)
	for path, c := range map[string]struct {
		status int
		says   string
	}{
		"/api/v1/jobs?state=lost":           {400, "state must be one of pending_approval, queued, blocked, no_pool, elsewhere, assigned, running and completed"},
		"/api/v1/jobs?state=":               {400, "state must be one of pending_approval, queued, blocked, no_pool, elsewhere, assigned, running and completed"},
		"/api/v1/jobs?conclusion=bad":       {400, "conclusion must be one of"},
		"/api/v1/jobs?before=x":             {400, "before must be the value of next of the previous page"},
		"/api/v1/jobs?before=-1":            {400, "before must be the value of next of the previous page"},
		"/api/v1/jobs?limit=0":              {400, "limit must be from 1 to"},
		"/api/v1/jobs?account=none":         {404, `account \"none\" not found`},
		"/api/v1/jobs/x":                    {400, "expected GitHub's numeric job ID"},
		"/api/v1/jobs/0/why":                {400, "expected GitHub's numeric job ID"},
		"/api/v1/jobs/4":                    {404, "job 4 not found: for the reason, run `bullpen why 4`"},
		"/api/v1/jobs/99999999999999999999": {400, "expected GitHub's numeric job ID"},
	} {
		status, body := d.raw(http.MethodGet, path, "", "")
		require.Equal(t, c.status, status, path)
		require.Contains(t, body, c.says, path)
	}
}

func TestParseJob(t *testing.T) {
	for text, want := range map[string]int64{
		"31": 31,
		"https://github.com/acme/app/actions/runs/27/job/31":           31,
		"https://ghe.example.com/acme/app/actions/runs/27/job/31?pr=4": 31,
		"https://github.com/acme/job/actions/runs/27/job/31/":          31,
	} {
		got, err := cli.ParseJob(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "x", "-1", "0", "https://github.com/acme/app/actions/runs/27", "https://github.com/acme/app/actions/runs/27/job/", "9999999999999999999999"} {
		_, err := cli.ParseJob(text)
		require.Error(t, err, text)
	}
}

func FuzzParseJob(f *testing.F) {
	f.Add("https://github.com/acme/app/actions/runs/27/job/31")
	f.Add("31")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := cli.ParseJob(text)
		if err == nil && id < 1 {
			t.Fatalf("%q is job %d", text, id)
		}
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Fatalf("%q is refused without a word", text)
		}
	})
}
