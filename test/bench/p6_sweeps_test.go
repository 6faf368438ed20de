package bench

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
	"github.com/bullpen-ci/bullpen/internal/server/events/installations"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/periodic"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

// restingRepositories are those of the installation whose sweeps are counted, each of which had a job of late.
const restingRepositories = 25

// BenchmarkP6Sweeps counts the requests to GitHub in an hour of passes, by the passes' own clock, while nothing is amiss and no job runs.
// Responses "not modified" count towards no limit, as at GitHub, and are reported separately, as are the requests as the App itself (its
// deliveries, its installations), which count towards another limit. The hour begins with a client that has asked nothing yet; a token is
// renewed once an hour, and responses that were read with another token are read again.
func BenchmarkP6Sweeps(b *testing.B) {
	for b.Loop() {
		local, forge := startGitHub(b, "")
		resting := standin.Installation{ID: 43, Account: "resting", Type: "Organization"}
		for i := range restingRepositories {
			resting.Repositories = append(resting.Repositories, fmt.Sprintf("r%d", i))
		}
		_, err := local.Admin.Install(b.Context(), resting)
		require.NoError(b, err)
		r := newRig(b, forge)
		now := time.Now()
		list := hourly(b, r, forge, func() time.Time { return now })
		endJobs(b, r, resting, now)
		require.NoError(b, local.Admin.ResetStats(b.Context()))
		start := now
		due := make([]time.Time, len(list))
		for now = start; now.Before(start.Add(time.Hour)); now = now.Add(time.Second) {
			for i, pass := range list {
				if now.Before(due[i]) {
					continue
				}
				due[i] = now.Add(pass.Every)
				require.NoError(b, pass.Run(b.Context()), pass.Name)
			}
		}
		asApp, counted, free := 0, 0, 0
		for route, calls := range local.Stats().Routes {
			_, path, _ := strings.Cut(route, " ")
			unchanged := calls.ByStatus[http.StatusNotModified]
			if strings.HasPrefix(path, "/app") {
				asApp += calls.Calls - unchanged
				continue
			}
			counted, free = counted+calls.Calls-unchanged, free+unchanged
		}
		require.Positive(b, counted)
		b.ReportMetric(float64(counted), "calls/hour")
		report(row{
			id: "P6", what: fmt.Sprintf("sweeps an hour, an installation with %d repositories at rest", restingRepositories),
			measured: fmt.Sprintf("%d calls that count, %d answered \"not modified\" (and %d as the App)", counted, free, asApp), limit: "count",
			result: fmt.Sprint(counted), value: float64(counted), samples: 1, budget: "≤ 60", kept: counted <= 60,
		})
	}
}

// endJobs has the ledger know of one job of each repository, which has ended.
func endJobs(b *testing.B, r *rig, of standin.Installation, at time.Time) {
	b.Helper()
	account, err := r.store.Account(b.Context(), of.Account)
	require.NoError(b, err)
	for i, name := range of.Repositories {
		job := dispatch.JobEvent{
			Account: dispatch.Account{ID: account.ID, Login: of.Account, InstallationID: of.ID},
			JobID:   int64(1 + i), Repository: of.Account + "/" + name, RunID: int64(1 + i), Labels: []string{"linux-4cpu"}, QueuedAt: at,
		}
		for _, kind := range []fleet.JobEvent{fleet.JobEventQueued, fleet.JobEventCancelled} {
			job.Kind, job.CompletedAt = kind, at
			_, err := r.store.RecordJob(b.Context(), dispatch.Delivery{GUID: uuid.NewString(), Event: "workflow_job", At: at}, job)
			require.NoError(b, err)
		}
	}
}

// hourly are the server's passes that ask GitHub, by that clock.
func hourly(b *testing.B, r *rig, forge *github.Client, now func() time.Time) []periodic.Pass {
	b.Helper()
	payloads, err := intake.New(intake.Options{Store: r.store})
	require.NoError(b, err)
	caught, err := catchup.New(catchup.Options{
		Ledger: r.store, Forge: forge, Intake: payloads, Pools: r.Pools, Count: func(recovery.Kind) {}, Now: now,
	})
	require.NoError(b, err)
	known, err := installations.New(installations.Options{Forge: forge, Store: r.store, Now: now})
	require.NoError(b, err)
	require.NoError(b, known.Run(context.Background()))
	return append(caught.Passes(), periodic.Pass{Name: "installations", Every: installations.Every, Run: known.Run})
}
