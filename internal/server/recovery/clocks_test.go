package recovery_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/clock"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// wrong is by how much a replica's own clock is ahead: a little more than the patience, so that its own clock would
// misjudge everything.
var wrong = []time.Duration{patience + time.Second, -patience - time.Second}

// newSkewedWorld is one replica whose machine's clock is wrong, on a database whose clock stands still.
func newSkewedWorld(t *testing.T, ahead time.Duration) *world {
	w := openWorld(t)
	w.real = w.replica(ahead)
	w.start()
	return w
}

// replica is the clock of a server on a machine that is so much ahead, wired as `bullpen server` does.
func (w *world) replica(ahead time.Duration) func() time.Time {
	w.t.Helper()
	c, err := clock.New(w.t.Context(), clock.Options{
		Read: w.store.Now, Wall: func() time.Time { return time.Now().Add(ahead) }, Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Metrics: prometheus.NewRegistry(),
	})
	require.NoError(w.t, err)
	return c.Now
}

// older moves everything that the ledger says of a claim into the past, by the database's clock.
func (w *world) older(by time.Duration) {
	w.t.Helper()
	past := fmt.Sprintf("interval '%f seconds'", by.Seconds())
	ledgertest.Exec(w.t, w.url, `UPDATE runner_claims SET claimed_at = claimed_at - `+past+`, minted_at = minted_at - `+past+
		`, acknowledged_at = acknowledged_at - `+past+`, missing_since = missing_since - `+past+`, lease_until = lease_until - `+past)
}

func eachWrong(t *testing.T, test func(t *testing.T, ahead time.Duration)) {
	for _, ahead := range wrong {
		t.Run(ahead.String(), func(t *testing.T) { test(t, ahead) })
	}
}

// RECV-2, RECV-5: a replica whose clock is five minutes ahead leaves a fresh claim alone, and one whose clock is five minutes
// behind recovers a stale one within its bound.
func TestPass_RECV2_AWrongClockMakesNoClaimOlderOrYounger(t *testing.T) {
	eachWrong(t, func(t *testing.T, ahead time.Duration) {
		w := newSkewedWorld(t, ahead)
		job, _ := w.submit()
		pod := w.pod()
		w.served(pod)
		ledgertest.Exec(t, w.url, `UPDATE runner_claims SET claimed_at = now(), minted_at = now()`) // by a replica whose clock is right
		require.Empty(t, w.pass())
		require.Equal(t, fleet.ClaimMinted, w.claim(pod).State)
		w.older(patience - 10*time.Second)
		require.Empty(t, w.pass(), "it may still start")
		w.older(11 * time.Second)
		require.Equal(t, map[string]int{"stale_claim": 1}, w.pass())
		require.Equal(t, fleet.JobQueued, w.jobState(job))
	})
}

// RECV-4: an absence that one replica noted lasts as long for another, whichever of them has the wrong clock.
func TestPass_RECV4_AWrongClockShortensNoAbsence(t *testing.T) {
	eachWrong(t, func(t *testing.T, ahead time.Duration) {
		w := newSkewedWorld(t, ahead)
		w.submit()
		pod := w.pod()
		w.served(pod)
		w.pod() // a list without pods says nothing
		w.cluster.drop(pod.UID)
		other := w.recovery(w.replica(-ahead), func(o *recovery.Options) { o.Metrics = prometheus.NewRegistry() })
		for range 2 {
			require.Empty(t, w.pass())
			require.NoError(t, other.Pass(t.Context()))
		}
		require.Equal(t, fleet.ClaimMinted, w.claim(pod).State, "missed a moment ago, by both")
		ledgertest.Exec(t, w.url, `UPDATE runner_claims SET missing_since = missing_since - interval '301 seconds'`)
		require.Equal(t, map[string]int{"pod_missing_claim": 1}, w.pass())
	})
}

// RECV-5: a job that is reported as running and that no claim has is asked about when it was silent for long, and no
// sooner.
func TestPass_RECV5_AWrongClockMakesNoJobStray(t *testing.T) {
	eachWrong(t, func(t *testing.T, ahead time.Duration) {
		w := newSkewedWorld(t, ahead)
		job, _ := w.submit()
		ledgertest.Exec(t, w.url, `UPDATE workflow_jobs SET state = 'executing', runner_name = 'x', started_at = now(), updated_at = now()`)
		require.Empty(t, w.pass())
		ledgertest.Exec(t, w.url, `UPDATE workflow_jobs SET updated_at = now() - interval '301 seconds'`)
		require.Equal(t, map[string]int{"unclaimed_job": 1}, w.pass())
		require.Equal(t, fleet.JobQueued, w.jobState(job))
	})
}

// RECV-2: what a replica writes down carries the database's time, so that no other has to know who wrote it.
func TestPass_RECV2_AWrongClockWritesNoWrongTimes(t *testing.T) {
	eachWrong(t, func(t *testing.T, ahead time.Duration) {
		w := newSkewedWorld(t, ahead)
		w.submit()
		w.delivered(w.pod())
		missing := w.pod()
		w.submit()
		w.served(missing)
		w.cluster.drop(missing.UID)
		require.Empty(t, w.pass())
		for table, columns := range map[string][]string{
			"runner_claims":        {"claimed_at", "minted_at", "acknowledged_at", "missing_since"},
			"runner_registrations": {"created_at"},
			"runner_sessions":      {"started_at", "claimed_at"},
			"workflow_jobs":        {"updated_at", "received_at"},
		} {
			for _, column := range columns {
				off := `SELECT count(*) FROM ` + table + ` WHERE abs(extract(epoch FROM ` + column + ` - now())) > 60`
				require.Zero(t, ledgertest.Int(t, w.url, off), "%s.%s", table, column)
				require.Positive(t, ledgertest.Int(t, w.url, `SELECT count(`+column+`) FROM `+table), "%s.%s", table, column)
			}
		}
		require.Zero(t, ledgertest.Int(t, w.url,
			`SELECT count(*) FROM runner_claims WHERE lease_until > now() + interval '2 minutes' OR lease_until < now() - interval '10 seconds'`))
	})
}

// RECV-1: a pod's status has its node's time, which may be wrong. A pod without a claim has the grace from when it was first seen in that
// state, and is removed when it is over. When it shows another state, the grace begins again.
func TestPass_RECV1_ANodesClockMakesNoPodOlderOrYounger(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, -patience - time.Second, patience, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			w := newWorld(t).known()
			pod := w.pod(stamped, func(p *recovery.Pod) { p.Since = w.clock().Add(ahead) })
			require.Empty(t, w.pass(), "it has only just been seen")
			require.Empty(t, w.check(pod))
			w.advance(patience - time.Second)
			require.Empty(t, w.pass())
			w.cluster.change(pod.UID, func(p *recovery.Pod) { p.Since = p.Since.Add(time.Second) })
			w.advance(2 * time.Second)
			require.Empty(t, w.pass(), "something has happened to it")
			w.advance(patience - time.Second)
			require.Empty(t, w.check(pod))
			w.advance(time.Second)
			require.Equal(t, map[string]int{"orphaned_labelled_pod": 1}, w.pass())
			require.Equal(t, fleet.ClaimRetired, w.claim(pod).State)
			w.pass()
			require.Zero(t, ledgertest.Int(t, w.url, `SELECT count(*) FROM pod_sightings`), "it is no longer in doubt")
		})
	}
}
