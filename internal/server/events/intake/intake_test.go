package intake_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

func payload(action string, id int64, more string) []byte {
	return fmt.Appendf(nil, `{"action":%q,"workflow_job":{"id":%d,"run_id":9,"name":"build","labels":["linux"]%s},
		"repository":{"id":7,"full_name":"acme/app","owner":{"id":5,"login":"acme","type":"Organization"}},
		"installation":{"id":42}}`, action, id, more)
}

func newIntake(t *testing.T) (*intake.Intake, *ledger.Store, *prometheus.Registry) {
	t.Helper()
	store, err := ledger.Open(t.Context(), postgrestest.NewDatabase(t, ledger.Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	metrics := prometheus.NewRegistry()
	in, err := intake.New(intake.Options{Store: store, Metrics: metrics})
	require.NoError(t, err)
	return in, store, metrics
}

func state(t *testing.T, store *ledger.Store, id int64) fleet.JobState {
	t.Helper()
	got, err := store.JobState(t.Context(), id)
	require.NoError(t, err)
	return got
}

func TestTake_EveryOutcomeIsSaidAndCounted(t *testing.T) {
	in, store, metrics := newIntake(t)
	for _, one := range []struct {
		guid, event string
		body        []byte
		want        intake.Outcome
	}{
		{"a", "workflow_job", payload("queued", 1, ""), intake.Recorded},
		{"a", "workflow_job", payload("queued", 1, ""), intake.Repeated},
		{"b", "workflow_job", payload("renamed", 1, ""), intake.Ignored},
		{"c", "workflow_job", []byte(`{"trunc`), intake.Malformed},
		{"", "workflow_job", payload("queued", 2, ""), intake.Malformed},
		{"with\x00zero", "workflow_job", payload("queued", 2, ""), intake.Malformed},
		{strings.Repeat("x", intake.MaxGUID+1), "workflow_job", payload("queued", 2, ""), intake.Malformed},
		{"d", "ping", nil, intake.Recorded},
		{"e", "star", nil, intake.Ignored},
	} {
		got := in.Take(t.Context(), intake.Delivery{GUID: one.guid, Event: one.event, Body: one.body, At: time.Now()})
		require.Equal(t, one.want, got.Outcome, "%+v", got)
		require.NotEmpty(t, got.Reason)
	}
	require.Equal(t, fleet.JobQueued, state(t, store, 1))
	require.Equal(t, fleet.JobAbsent, state(t, store, 2))
	families, err := metrics.Gather()
	require.NoError(t, err)
	counted := map[string]float64{}
	for _, series := range families[0].GetMetric() {
		counted[series.GetLabel()[0].GetValue()+" "+series.GetLabel()[1].GetValue()] = series.GetCounter().GetValue()
	}
	require.Equal(t, map[string]float64{
		"other ignored": 1, "ping recorded": 1, "unknown malformed": 4, "workflow_job ignored": 1, "workflow_job recorded": 1,
		"workflow_job repeated": 1,
	}, counted)
}

func TestObserve_CLAIM4_ATombstoneBarsWhatWasReadLate(t *testing.T) {
	in, store, _ := newIntake(t)
	taken := in.Take(t.Context(), intake.Delivery{
		GUID: "done", Event: "workflow_job", Body: payload("completed", 1, `,"conclusion":"success"`), At: time.Now(),
	})
	require.Equal(t, intake.Recorded, taken.Outcome)
	owner := dispatch.Account{ID: 5, Login: "acme", InstallationID: 42}
	read := func(id int64) github.WorkflowJob {
		return github.WorkflowJob{ID: id, RunID: 9, Status: "queued", Labels: []string{"linux"}, CreatedAt: time.Now()}
	}
	for range 2 { // what was read twice is recorded twice, to the same effect
		for _, id := range []int64{1, 2} {
			kind, ok := intake.StatusEvent(read(id))
			require.True(t, ok)
			rec, err := in.Observe(t.Context(), intake.JobEvent(kind, owner, fleet.Repository{Name: "acme/app"}, read(id)), time.Now())
			require.NoError(t, err)
			require.True(t, rec.Fresh, "what was read has no delivery that it could repeat")
		}
	}
	require.Equal(t, fleet.JobCompleted, state(t, store, 1))
	require.Equal(t, fleet.JobQueued, state(t, store, 2))
}

func TestStatusEvent(t *testing.T) {
	for status, want := range map[string]fleet.JobEvent{
		"queued": fleet.JobEventQueued, "waiting": fleet.JobEventWaiting, "pending": fleet.JobEventWaiting,
		"requested": fleet.JobEventWaiting, "in_progress": fleet.JobEventStarted, "completed": fleet.JobEventCompleted,
		"something new": "", "": "",
	} {
		got, ok := intake.StatusEvent(github.WorkflowJob{Status: status})
		require.Equal(t, want, got, status)
		require.Equal(t, want != "", ok, status)
	}
	got, _ := intake.StatusEvent(github.WorkflowJob{Status: "completed", Conclusion: "cancelled"})
	require.Equal(t, fleet.JobEventCancelled, got)
}
