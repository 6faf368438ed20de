package incidents

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// GitHub refuses a repository, whose job is at the head of the queue: the others of the account are served at once,
// for any status and URL. When it is fixed, the job runs.
func TestRefusal_CLAIM19_EveryStatusAndRoute(t *testing.T) {
	t.Parallel()
	for _, atRepository := range []bool{false, true} {
		t.Run(fmt.Sprintf("repository=%v", atRepository), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(o *worldOptions) {
				o.github = func(s *standin.Options) { s.Installations[0].Repositories = []string{"app", "bad"} }
			})
			w.cluster.PutPool(dispatch.Pool{
				Namespace: "runners", Name: "linux", Labels: []string{"linux", "special"}, Platform: fleet.Linux,
				Shape: fleet.Shape{MilliCPU: 1000, MemoryMB: 1024}, RunnerGroupID: 1, RepositoryScope: atRepository,
			})
			w.up().dispatcher.PoolsChanged()
			// GitHub does not know for which job a runner is registered: at the organization's URL the job has labels of
			// its own.
			runsOn := "[linux, special]"
			if atRepository {
				runsOn = "linux"
			}
			for _, status := range []int{
				http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity,
			} {
				refused := standin.Fault{Kind: "rest-status", Status: status, Route: "generate-jitconfig", Job: "refused"}
				switch {
				case atRepository && status == http.StatusForbidden:
					refused = standin.Fault{Kind: "scope-forbidden", Scope: "acme/bad"} // the other would be a rate limit
				case atRepository:
					refused.Job, refused.Scope = "", "acme/bad"
				case status == http.StatusForbidden:
					continue
				}
				refused = w.fault(refused)
				bad := w.submitIn("acme/bad", "refused", runsOn)
				bad.known()
				good := w.submit("acme", "linux", 2)
				w.add("linux")
				w.add("linux")
				good.release()
				good.succeed()
				require.Equal(t, 1, w.struck(refused), "status %d", status)
				require.Equal(t, fleet.JobQueued, w.state(bad.jobs[0]), "status %d", status)

				w.heal()
				w.add("linux")
				w.clock.Advance(time.Minute) // more than the first back-off
				bad.release()
				bad.succeed()
			}
		})
	}
}

// submitIn starts a run of one job of that name in a repository.
func (w *world) submitIn(repository, name, runsOn string) *run {
	w.t.Helper()
	gate := w.t.TempDir() + "/go"
	runs, err := w.github.Admin.Submit(w.t.Context(), standin.Submission{
		FileName: "incident.yaml", Repo: repository, Content: fmt.Sprintf(
			"on: workflow_dispatch\njobs:\n  %s:\n    runs-on: %s\n    steps: [{run: \"until [ -e %s ]; do sleep 0.01; done\"}]\n", name, runsOn, gate),
	})
	require.NoError(w.t, err)
	return &run{w: w, jobs: runs[0].Jobs, gate: gate, id: runs[0].ID}
}
