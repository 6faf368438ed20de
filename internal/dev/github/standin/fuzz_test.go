package standin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecoders sends junk to everything that decodes a body: the answer is a refusal with a sentence, or a success,
// never a crash and never a 500.
func FuzzDecoders(f *testing.F) {
	bodies := []string{
		``, `{`, `[]`, `null`, `{}`, `{"name":1}`, `{"jobMessageId":"x"}`, `{"planId":"p","jobId":"j","conclusion":"succeeded"}`,
		`{"steps":[{"number":"one"}]}`, `{"workflow_job_run_backend_id":"../../x"}`, `{"runnerRequestId":[]}`, "\x00\xff",
		`{"kind":"rest-latency","delay":"-1s"}`, `{"account":"a/b"}`, `{"content":"on: push\njobs: {}","repo":"acme/app"}`,
	}
	for route := range 16 {
		for _, body := range bodies {
			f.Add(route, body)
		}
	}
	w := newWorld(f, nil)
	r := w.mint("fuzz", "x")
	require.Equal(f, http.StatusOK, r.authorize(ps256, w.clock.Now()))
	f.Fuzz(func(t *testing.T, route int, body string) {
		const results = "/_services/results/twirp/"
		routes := []struct{ method, path, token string }{
			{"POST", "/_services/token", ""},
			{"POST", "/_services/broker/session", r.token},
			{"POST", "/_services/pipelines/_apis/distributedtask/pools/1/sessions", r.token},
			{"POST", "/_services/broker/acknowledge", r.token},
			{"POST", "/_services/run/acquirejob", r.token},
			{"POST", "/_services/run/renewjob", r.token},
			{"POST", "/_services/run/completejob", r.token},
			{"POST", results + "results.services.receiver.Receiver/GetStepLogsSignedBlobURL", r.token},
			{"POST", results + "results.services.receiver.Receiver/CreateJobLogsMetadata", r.token},
			{"POST", results + "github.actions.results.api.v1.WorkflowStepUpdateService/WorkflowStepsUpdate", r.token},
			{"PUT", "/_services/results/blobs/1-job-", ""},
			{"POST", "/_standin/workflows", ""},
			{"POST", "/_standin/faults", ""},
			{"POST", "/_standin/installations", ""},
			{"PUT", "/_standin/webhook", ""},
			{"POST", "/orgs/acme/actions/runners/generate-jitconfig", r.token},
		}
		to := routes[uint(route)%uint(len(routes))]
		request := httptest.NewRequest(to.method, to.path, strings.NewReader(body))
		request.Header.Set("Authorization", "Bearer "+to.token)
		answer := httptest.NewRecorder()
		w.in.ServeHTTP(answer, request)
		require.Less(t, answer.Code, 500, "%s %s %q: %s", to.method, to.path, body, answer.Body)
		if answer.Code >= 400 {
			require.Contains(t, answer.Header().Get("Content-Type"), "json")
			require.NotEmpty(t, answer.Body.String())
		}
		w.in.RemoveFault(0)
	})
}
