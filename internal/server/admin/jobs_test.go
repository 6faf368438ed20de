package admin

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// A job links to its page and its run's at the GitHub that it is of; where GitHub has no pages, to none.
func TestJobs_LinkToGitHub(t *testing.T) {
	for _, c := range []struct {
		github   string
		job      adminapi.Job
		url, run string
	}{
		{
			"https://github.com", adminapi.Job{ID: 7, RunID: 9, RunAttempt: 1, Repository: "acme/app"},
			"https://github.com/acme/app/actions/runs/9/job/7", "https://github.com/acme/app/actions/runs/9",
		},
		{
			"https://ghes.example.com/", adminapi.Job{ID: 7, RunID: 9, RunAttempt: 3, Repository: "acme/app"},
			"https://ghes.example.com/acme/app/actions/runs/9/job/7", "https://ghes.example.com/acme/app/actions/runs/9/attempts/3",
		},
		{
			"https://github.com", adminapi.Job{ID: 7, RunID: 9, Repository: "acme/a?b"},
			"https://github.com/acme/a%3Fb/actions/runs/9/job/7", "https://github.com/acme/a%3Fb/actions/runs/9",
		},
		{"https://github.com", adminapi.Job{ID: 7, RunID: 9, Repository: "no slash"}, "", ""},
		{"", adminapi.Job{ID: 7, RunID: 9, Repository: "acme/app"}, "", ""},
	} {
		o := &oracle{}
		api, err := New(Options{Store: o, Access: o, Fleet: o, GitHub: c.github})
		require.NoError(t, err)
		job := api.linked(c.job)
		require.Equal(t, []string{c.url, c.run}, []string{job.URL, job.RunURL}, c.github)
	}
}

// What a search asks for reads a bounded number of jobs; what an index has does not search.
func TestJobQuery_SaysWhatSearches(t *testing.T) {
	for text, searches := range map[string]bool{
		"": false, "state=queued": false, "repository=acme/app": false, "account=acme&ended=true": false, "repository=app": true, "name=build": true, "conclusion=failure": true,
	} {
		query, err := url.ParseQuery(text)
		require.NoError(t, err)
		q, _, err := jobQuery(query)
		require.NoError(t, err)
		require.Equal(t, searches, q.Searches(), text)
	}
	q, _, err := jobQuery(url.Values{"conclusion": {"failure", "timed_out"}})
	require.NoError(t, err)
	require.True(t, q.Ended, "only completed jobs have one")
	_, _, err = jobQuery(url.Values{"conclusion": {"bad"}})
	require.ErrorContains(t, err, "conclusion must be one of success, failure, cancelled, skipped, timed_out")
}
