package restore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func found(name string, id int64, online, busy bool) roster.Found {
	return roster.Found{
		Registration: fleet.Registration{ID: id, Name: name, Online: online, Busy: busy},
		Owner:        fleet.Owner{ID: acme.ID, Login: acme.Login, InstallationID: acme.InstallationID},
		Scope:        fleet.Scope{Owner: acme.Login},
	}
}

// CLAIM-17: what becomes of each row that a backup may hold, by what GitHub shows of the pod now.
func TestRebuild_CLAIM17_EveryRow(t *testing.T) {
	const name, older = "bp-newer", "bp-older"
	type row struct {
		state  fleet.ClaimState
		name   string
		job    int64
		acked  bool
		leased bool
	}
	offline, online, busy := found(name, 2, false, false), found(name, 2, true, false), found(name, 2, true, true)
	cases := map[string]struct {
		before row
		ended  bool // its poller has exited 0
		shown  []roster.Found
		want   row
		job    fleet.JobState // of job 1
	}{
		"no row, busy":                     {row{}, true, []roster.Found{busy}, row{fleet.ClaimExecuting, name, 0, true, false}, fleet.JobQueued},
		"no row, online":                   {row{}, true, []roster.Found{online}, row{fleet.ClaimMinted, name, 0, true, false}, fleet.JobQueued},
		"no row, delivered":                {row{}, true, []roster.Found{offline}, row{fleet.ClaimMinted, name, 0, true, false}, fleet.JobQueued},
		"no row, perhaps not delivered":    {row{}, false, []roster.Found{offline}, row{fleet.ClaimMinted, name, 0, false, false}, fleet.JobQueued},
		"no row, two registrations":        {row{}, true, []roster.Found{found(older, 9, false, false), busy}, row{fleet.ClaimExecuting, name, 0, true, false}, fleet.JobQueued},
		"claimed, minted since":            {row{fleet.ClaimClaimed, older, 1, false, true}, true, []roster.Found{online}, row{fleet.ClaimMinted, name, 1, true, false}, fleet.JobMinted},
		"minted, minted again since":       {row{fleet.ClaimMinted, older, 1, false, false}, false, []roster.Found{offline}, row{fleet.ClaimMinted, name, 1, false, false}, fleet.JobMinted},
		"minted, busy since":               {row{fleet.ClaimMinted, name, 1, false, false}, true, []roster.Found{busy}, row{fleet.ClaimMinted, name, 1, true, false}, fleet.JobMinted},
		"minted, as it was":                {row{fleet.ClaimMinted, name, 1, true, false}, true, []roster.Found{online}, row{fleet.ClaimMinted, name, 1, true, false}, fleet.JobMinted},
		"executing, as it was":             {row{fleet.ClaimExecuting, name, 1, true, false}, true, []roster.Found{busy}, row{fleet.ClaimExecuting, name, 1, true, false}, fleet.JobExecuting},
		"spent, busy since":                {row{fleet.ClaimSpent, older, 0, true, false}, true, []roster.Found{busy}, row{fleet.ClaimExecuting, name, 0, true, false}, fleet.JobQueued},
		"retired, busy since":              {row{fleet.ClaimRetired, "", 0, false, false}, true, []roster.Found{busy}, row{fleet.ClaimExecuting, name, 0, true, false}, fleet.JobQueued},
		"spent, and something idle":        {row{fleet.ClaimSpent, older, 0, true, false}, true, []roster.Found{online}, row{fleet.ClaimSpent, older, 0, true, false}, fleet.JobQueued},
		"retired, and something offline":   {row{fleet.ClaimRetired, "", 0, false, false}, false, []roster.Found{offline}, row{fleet.ClaimRetired, "", 0, false, false}, fleet.JobQueued},
		"minted, and an older one is left": {row{fleet.ClaimMinted, name, 1, true, false}, true, []roster.Found{found(older, 1, false, false), offline}, row{fleet.ClaimMinted, name, 1, true, false}, fleet.JobMinted},
	}
	url := postgrestest.NewDatabase(t, ledger.Migrate)
	store, err := ledger.Open(t.Context(), url, 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	turn := holding(t, store, time.Minute)
	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			ledgertest.Exec(t, url, `TRUNCATE accounts, runner_claims, runner_registrations, runner_sessions CASCADE`)
			w := newWorld(t)
			s := &server{w: w, store: store}
			pod := w.pod()
			pod.PollerEnded = c.ended
			if c.before.state != "" {
				s.install(9)
				s.tell(fleet.JobEventQueued, 1, "")
				if c.before.job != 0 {
					state := map[fleet.ClaimState]fleet.JobState{
						fleet.ClaimClaimed: fleet.JobClaimed, fleet.ClaimMinted: fleet.JobMinted, fleet.ClaimExecuting: fleet.JobExecuting,
					}[c.before.state]
					ledgertest.Exec(t, url, `UPDATE workflow_jobs SET state = $1`, state)
				}
				ledgertest.Exec(t, url, `INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id,
					job_id, runner_name, claimed_at, acknowledged_at, lease_until)
					VALUES ($1, $2, $3, 'linux', $4, 5, 1, nullif($5::bigint, 0), $6, now(), CASE WHEN $7 THEN now() END, CASE WHEN $8 THEN now() + interval '1 minute' END)`,
					pod.UID, pod.Namespace, pod.Name, c.before.state, c.before.job, c.before.name, c.before.acked, c.before.leased)
			}
			f, ok := dispatch.FoundAt(pod, pool, roster.Sighting{Found: c.shown})
			require.True(t, ok)
			for range 2 { // it repeats safely
				state, err := store.Rebuild(t.Context(), turn, f, time.Now())
				require.NoError(t, err)
				claim := s.claim(pod)
				got := row{claim.State, claim.RunnerName, claim.JobID, claim.Acknowledged, !claim.LeaseUntil.IsZero()}
				require.Equal(t, c.want, got)
				require.Equal(t, claim.State, state)
				if claim.State.Live() {
					require.Equal(t, acme, claim.Account)
				}
			}
			if c.before.state != "" {
				require.Equal(t, c.job, s.job(1))
			}
			for _, r := range c.shown { // EXCL-6: none of them may be alive when the claim is released
				require.EqualValues(t, 1, ledgertest.Int(t, url, `SELECT count(*) FROM runner_registrations WHERE runner_name = $1 AND state = 'alive' AND runner_id = $2`, r.Name, r.ID))
			}
			released, err := store.Release(t.Context(), pod.UID, s.claim(pod).Generation, "because", time.Now())
			require.NoError(t, err)
			require.False(t, released)
		})
	}
}
