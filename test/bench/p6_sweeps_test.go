package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/catchup"
	"github.com/bullpen-ci/bullpen/internal/dispatch"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/installations"
	"github.com/bullpen-ci/bullpen/internal/intake"
	"github.com/bullpen-ci/bullpen/internal/passes"
	"github.com/bullpen-ci/bullpen/internal/recovery"
)

// BenchmarkP6Sweeps counts what an hour of passes asks GitHub, by the passes' own clock, while nothing is amiss: of an
// installation with one repository whose jobs have all ended. What is asked as the App itself (its deliveries, its
// installations) counts towards another limit, and is told beside it.
func BenchmarkP6Sweeps(b *testing.B) {
	for b.Loop() {
		local, forge := startGitHub(b, "")
		r := newRig(b, forge)
		now := time.Now()
		list := hourly(b, r, forge, func() time.Time { return now })
		acme, err := r.store.Account(b.Context(), "acme")
		require.NoError(b, err)
		ended := dispatch.JobEvent{
			Account: dispatch.Account{ID: acme.ID, Login: "acme", InstallationID: 42},
			JobID:   1, Repository: "acme/app", RunID: 1, Labels: []string{"linux-4cpu"}, QueuedAt: now,
		}
		for _, kind := range []fleet.JobEvent{fleet.JobEventQueued, fleet.JobEventCancelled} {
			ended.Kind, ended.CompletedAt = kind, now
			_, err := r.store.RecordJob(b.Context(), dispatch.Delivery{GUID: uuid.NewString(), Event: "workflow_job", At: now}, ended)
			require.NoError(b, err)
		}
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
		asApp, asInstallation := 0, 0
		for route, calls := range local.Stats().Routes {
			_, path, _ := strings.Cut(route, " ")
			if strings.HasPrefix(path, "/app") {
				asApp += calls.Calls
				continue
			}
			asInstallation += calls.Calls
		}
		b.ReportMetric(float64(asInstallation), "calls/hour")
		report(row{
			id: "P6", what: "sweeps an hour, an installation with one repository",
			measured: fmt.Sprintf("%d calls as the installation (and %d as the App)", asInstallation, asApp), limit: "count",
			result: fmt.Sprint(asInstallation), value: float64(asInstallation), samples: 1, budget: "≤ 60", kept: asInstallation <= 60,
		})
	}
}

// hourly are the server's passes that ask GitHub, by that clock.
func hourly(b *testing.B, r *rig, forge *github.Client, now func() time.Time) []passes.Pass {
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
	return append(caught.Passes(), passes.Pass{Name: "installations", Every: installations.Every, Run: known.Run})
}
