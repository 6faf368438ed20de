package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// The overview's number of failed jobs links to all of them: those that it counts are those that the filter asks for.
func TestFailures_AreWhatTheOverviewCounts(t *testing.T) {
	require.Equal(t, []string{"failure", "timed_out", "startup_failure"}, failures())
	template, err := os.ReadFile("templates/overview.html")
	require.NoError(t, err)
	require.Contains(t, string(template), `href="/ui/jobs?conclusion=`+anyFailure+`"`)

	var asked url.Values
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query()
		_ = json.NewEncoder(w).Encode(adminapi.JobList{Jobs: []adminapi.Job{}, Next: 7})
	})
	v := &visitor{ctx: t.Context(), api: api, who: caller{token: "t"}}
	_, data, err := loadJobs(nil, v, location{query: url.Values{"conclusion": {anyFailure}, "name": {"build"}}})
	require.NoError(t, err)
	require.Equal(t, failures(), asked["conclusion"])
	view, ok := data.(jobsView)
	require.True(t, ok)
	require.Equal(t, "Jobs: any failure, build", view.Tab())
	require.Equal(t, "/ui/jobs?before=7&conclusion=any_failure&name=build", view.Next, "the next page has the same filter")
	_, _, err = loadJobs(nil, v, location{query: url.Values{"conclusion": {"failure"}}})
	require.NoError(t, err)
	require.Equal(t, []string{"failure"}, asked["conclusion"])
}
