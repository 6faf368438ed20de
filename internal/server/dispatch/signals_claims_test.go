package dispatch_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// SCALE-2: what is asked for is what dispatch hands out to unlimited polls, through its own front door.
func TestSignals_SCALE2_IsWhatPollsAreGiven(t *testing.T) {
	h, c := newHarness(t), newClock()
	h.cluster.PutPool(linuxPool("gpu"))
	d := h.replica(at(c))
	globex := dispatch.Account{ID: 2, Login: "globex", InstallationID: 102}
	h.install(globex)
	require.NoError(t, h.store.SetLimits(t.Context(), acme.ID, fleet.Linux, fleet.Limits{MilliCPU: 3000, MemoryMB: 1 << 20, Jobs: 99}))
	require.NoError(t, h.store.SetLimits(t.Context(), globex.ID, fleet.Linux, fleet.Limits{MilliCPU: 1 << 20, MemoryMB: 1 << 20, Jobs: 1}))
	for id := int64(1); id <= 20; id++ {
		h.record(job(fleet.JobEventQueued, id, from([]dispatch.Account{acme, globex}[id%2]), labelled([]string{"linux", "gpu"}[id/2%2])))
	}
	before := h.asks(d, c)
	require.Equal(t, 4, before["linux"].Queued+before["gpu"].Queued)
	var polls []<-chan polled
	for range 20 {
		polls = append(polls, h.poll(t.Context(), d, h.pod("linux")), h.poll(t.Context(), d, h.pod("gpu")))
	}
	h.eventually("served", func() bool {
		got := h.asks(d, c)
		return got["linux"].Queued+got["gpu"].Queued == 0 && h.forge.Mints() == 4
	})
	h.eventually("the others wait", func() bool { return d.WaitingPolls() == len(polls)-4 })
	after := h.asks(d, c)
	require.Equal(t, 4, after["linux"].Claimed+after["gpu"].Claimed)
	require.Equal(t, 16, after["linux"].Blocked[runnerapi.BlockedLimit]+after["gpu"].Blocked[runnerapi.BlockedLimit])
	h.eventually("all answered", func() bool {
		h.timers.fire(runnerapi.PollHold)
		return d.WaitingPolls() == 0
	})
	for _, p := range polls {
		require.NoError(t, await.Receive(t, p, "the poll is answered").err)
	}
}

// SCALE-2: over random accounts, limits and pools, claiming hands out what was asked for, and then nothing more.
func TestSignals_SCALE2_IsWhatClaimingHandsOut(t *testing.T) {
	h, c := newHarness(t), newClock()
	d := h.replica(at(c))
	checkOnLedger(t, func(rt *rapid.T) {
		drawn := draw(rt)
		h.cluster.ReplacePools(drawn.pools)
		jobs := h.fill(drawn)
		d.Reconnected() // no notification named what was drawn
		asked := h.asks(d, c)
		handed := map[string]int{}
		running := map[dispatch.RepositoryBudget]int64{}
		claim := func(pool dispatch.Pool, key string, account int64, polls int) int {
			b := h.batchOf(pool, key, polls)
			for _, other := range []int64{1, 2, 3} {
				if account != 0 && other != account {
					b.Excluded = append(b.Excluded, other)
				}
			}
			n := 0
			for more := true; more; {
				result, err := h.store.ClaimBatch(t.Context(), b)
				require.NoError(rt, err)
				n += len(result.Claims)
				for _, c := range result.Claims {
					running[repositoryOf(pool, c)]++
				}
				more = result.More && (polls > 1 || n == 0)
				b.Polls = b.Polls[len(result.Claims):]
				more = more && len(b.Polls) > 0
			}
			return n
		}
		routing := dispatch.Route(drawn.pools, drawn.sets)
		for _, j := range jobs { // in the order in which unlimited polls, served one at a time, would get them
			for _, pool := range drawn.pools {
				budget := dispatch.Budget{AccountID: j.account, Platform: pool.Platform}
				most := drawn.backlog.Limits[budget].JobsPerRepository
				if most > 0 && running[dispatch.RepositoryBudget{Budget: budget, Repository: j.repository}] >= most {
					continue // it waits for its repository, and younger jobs go first
				}
				if slices.Contains(routing.Served[pool.Ref()], j.key) {
					handed[pool.Name] += claim(pool, j.key, j.account, 1)
				}
			}
		}
		for _, pool := range drawn.pools {
			require.Equal(rt, asked[pool.Name].Queued, handed[pool.Name], "pool %s", pool.Name)
			for _, key := range routing.Served[pool.Ref()] {
				require.Zero(rt, claim(pool, key, 0, 50), "asked for all there was")
			}
		}
		for name, p := range h.asks(d, c) {
			require.Zero(rt, p.Queued)
			require.Equal(rt, handed[name], p.Claimed)
		}
	})
}

type queuedJob struct {
	id, account int64
	at          time.Time
	key         string
	repository  string
}

func repositoryOf(pool dispatch.Pool, c dispatch.Claim) dispatch.RepositoryBudget {
	return dispatch.RepositoryBudget{
		Budget: dispatch.Budget{AccountID: c.Account.ID, Platform: pool.Platform}, Repository: c.Repository,
	}
}

// fill replaces what the ledger holds by what was drawn, and returns the jobs, oldest first.
func (h *harness) fill(d drawn) []queuedJob {
	h.t.Helper()
	ledgertest.Exec(h.t, h.url, `DELETE FROM runner_registrations; DELETE FROM runner_claims; DELETE FROM job_lanes;
		DELETE FROM workflow_jobs; DELETE FROM accounts; DELETE FROM label_sets`)
	for _, set := range d.sets {
		ledgertest.Exec(h.t, h.url, `INSERT INTO label_sets VALUES ($1, $2)`, set.Key, set.Labels)
	}
	var jobs []queuedJob
	suspended := map[int64]bool{}
	for _, lane := range d.backlog.Lanes {
		suspended[lane.Account.ID] = lane.Suspended
		for i, j := range lane.Oldest {
			jobs = append(jobs, queuedJob{j.ID, lane.Account.ID, j.QueuedAt, lane.LabelKey, lane.Repositories[i]})
		}
	}
	slices.SortFunc(jobs, func(a, b queuedJob) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id))
	})
	for id, s := range suspended {
		ledgertest.Exec(h.t, h.url, `INSERT INTO accounts VALUES ($1::bigint, 'a', 'Organization', $1::bigint, $2, now(), now())`, id, s)
	}
	for b, l := range d.backlog.Limits {
		ledgertest.Exec(h.t, h.url, `INSERT INTO account_limits VALUES ($1, $2, $3, $4, $5, $6)`,
			b.AccountID, string(b.Platform), l.MilliCPU, l.MemoryMB, l.Jobs, l.JobsPerRepository)
	}
	var ids, accounts []int64
	var ats []time.Time
	var keys, repositories []string
	for _, j := range jobs {
		ids, accounts, ats, keys = append(ids, j.id), append(accounts, j.account), append(ats, j.at), append(keys, j.key)
		repositories = append(repositories, j.repository)
	}
	ledgertest.Exec(h.t, h.url, `WITH queued AS (
		INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key,
			state, queued_at, updated_at)
		SELECT id, account, repository, 1, 1, '', '', '', '', key, 'queued', at, now()
		FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[]) AS j (id, account, at, key, repository)
		RETURNING label_key, account_id, queued_at)
		INSERT INTO job_lanes (label_key, account_id, head_at) SELECT label_key, account_id, min(queued_at) FROM queued GROUP BY 1, 2`,
		ids, accounts, ats, keys, repositories)
	return jobs
}

func (h *harness) batchOf(pool dispatch.Pool, key string, polls int) dispatch.Batch {
	b := dispatch.Batch{
		Pool: pool, LabelKeys: []string{key}, Excluded: []int64{}, Lease: time.Minute, Now: time.Now(),
		Reserve: func(_ dispatch.Account, want int) int { return want }, Return: func(int64, int) {},
	}
	for i := range polls {
		uid := uuid.NewString()
		b.Polls = append(b.Polls, dispatch.Poll{Namespace: "runners", PodName: fmt.Sprintf("pod-%d-%s", i, uid), PodUID: uid})
	}
	return b
}
