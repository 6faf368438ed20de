package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

func twoPools(d *desk) (now time.Time) {
	now = time.Now()
	oldest := now.Add(-90 * time.Second)
	d.fleet.described = []adminapi.Pool{
		{
			Namespace: "runners", Name: "macos", Labels: []string{"macos"}, Platform: "macos", Desired: 2, Busy: 2,
			Problems: []adminapi.Problem{{Condition: "Saturated", Sentence: "3 jobs wait and there may be no more runners"}},
		},
		{Namespace: "runners", Name: "linux-4", Labels: []string{"linux-4"}, Platform: "linux", MilliCPU: 4000, MemoryMB: 8192, Desired: 3, Idle: 1, Busy: 1, Starting: 1},
	}
	d.fleet.demand = []runnerapi.PoolSignals{
		{Namespace: "runners", Name: "linux-4", Queued: 1, Blocked: map[runnerapi.BlockedReason]int{runnerapi.BlockedLimit: 4, runnerapi.BlockedSuspended: 1}},
		{Namespace: "runners", Name: "macos", Queued: 3, OldestQueued: &oldest},
		{Namespace: "elsewhere", Name: "linux-4", Queued: 1000},
	}
	return now
}

// Pools are shown with what they have and what waits for them; without the latter while that cannot be read.
func TestPools_AreShownWithWhatWaitsForThem(t *testing.T) {
	d := newDesk(t)
	now := twoPools(d)
	list, err := d.Pools(t.Context())
	require.NoError(t, err)
	require.Equal(t, &adminapi.PoolDemand{Queued: 1, Blocked: map[string]int64{"account_limit": 4, "suspended": 1}}, list.Pools[0].Demand)
	var shown bytes.Buffer
	require.NoError(t, cli.Print(&shown, cli.FormatTable, list.Pools, cli.PoolTable(list.Pools, now)))
	require.Regexp(t, `(?m)^linux-4 +linux-4 +3 +1 +1 +1 +1 +5 +- +-$`, shown.String())
	require.Regexp(t, `(?m)^macos +macos +2 +0 +2 +0 +3 +0 +1m30s +Saturated$`, shown.String())

	d.fleet.unread = errors.New("the ledger is away")
	list, err = d.Pools(t.Context())
	require.NoError(t, err)
	require.Nil(t, list.Pools[0].Demand)
	shown.Reset()
	require.NoError(t, cli.Print(&shown, cli.FormatTable, list.Pools, cli.PoolTable(list.Pools, now)))
	require.Regexp(t, `(?m)^linux-4 +linux-4 +3 +1 +1 +1 +\? +\? +- +-$`, shown.String())

	status, body := d.raw(http.MethodGet, "/api/v1/pools/runners/linux-4", "", "")
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"name":"linux-4"`)
	status, body = d.raw(http.MethodGet, "/api/v1/pools/elsewhere/linux-4", "", "")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "pool \\\"linux-4\\\" not found in namespace elsewhere: list pools with `bullpen pools`")
}

// The status starts with the number of problems, and names each.
func TestStatus_SaysWhatToLookAt(t *testing.T) {
	d := newDesk(t)
	show := func() string {
		t.Helper()
		pools, err := d.Pools(t.Context())
		require.NoError(t, err)
		accounts, err := d.Accounts(t.Context(), false)
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, cli.PrintStatus(&out, cli.FormatTable, cli.Sum(pools, accounts), time.Now()))
		return out.String()
	}
	require.Contains(t, show(), "All is well.\n")
	twoPools(d)
	require.Contains(t, show(), "1 problem:\n  - Pool macos: 3 jobs wait and there may be no more runners.\n")
	require.Contains(t, show(), "Jobs      4 queued (oldest 1m30s), 5 blocked\nRunners   1 idle, 3 busy, 1 starting, 5 desired\n")
	_, err := d.ChangeLimits(t.Context(), "acme", "*", adminapi.ChangeLimits{Platforms: map[string]adminapi.LimitsChange{"linux": {Jobs: ptr(1)}}})
	require.NoError(t, err)
	d.tell(fleet.JobEventQueued, 6)
	d.tell(fleet.JobEventQueued, 7)
	require.Contains(t, show(), "  - Account acme is at its limit on linux, with 1 job blocked.\n", "the limit lets one of the two start")
	d.claim("linux-4-a")
	require.Contains(t, show(), "  - Account acme is at its limit on linux, with 1 job blocked.\n")
	_, err = d.Suspend(t.Context(), "acme", "unpaid")
	require.NoError(t, err)
	require.Contains(t, show(), "  - Account acme is suspended, with 1 job blocked.\n")
	d.fleet.held, d.fleet.unread = "the database was restored", errors.New("held")
	require.Contains(t, show(), "3 problems:\n  - No jobs are dispatched: the database was restored.\n")
}

// Lists of jobs, accounts and why have the same states, by one reading of the ledger.
func TestJobs_StatesAreThoseThatAccountsCount(t *testing.T) {
	d := newDesk(t)
	d.fleet.lanes = d.store
	_, err := d.ChangeLimits(t.Context(), "acme", "*", adminapi.ChangeLimits{Platforms: map[string]adminapi.LimitsChange{"linux": {Jobs: ptr(2)}}})
	require.NoError(t, err)
	for id := int64(11); id <= 15; id++ {
		d.tell(fleet.JobEventQueued, id)
	}
	d.tell(fleet.JobEventQueued, 16, func(ev *dispatch.JobEvent) { ev.Labels = []string{"linx-4"} })
	states := func() map[string][]int64 {
		t.Helper()
		got := map[string][]int64{}
		for _, state := range []string{adminapi.JobQueued, adminapi.JobBlocked, adminapi.JobNoPool} {
			jobs, err := d.Jobs(t.Context(), cli.JobFilter{States: []string{state}, Most: 10})
			require.NoError(t, err)
			for _, job := range jobs {
				require.Equal(t, state, job.State)
				got[state+" "+job.BlockedBy] = append(got[state+" "+job.BlockedBy], job.ID)
				why, err := d.Why(t.Context(), job.ID)
				require.NoError(t, err)
				require.Equal(t, []string{state, job.BlockedBy}, []string{why.Job.State, why.Job.BlockedBy})
			}
		}
		return got
	}
	account := func() adminapi.Account {
		t.Helper()
		accounts, err := d.Accounts(t.Context(), false)
		require.NoError(t, err)
		return accounts[0]
	}
	require.Equal(t, map[string][]int64{"queued ": {12, 11}, "blocked account_limit": {15, 14, 13}, "no_pool ": {16}}, states())
	a := account()
	require.Equal(t, []int64{2, 3, 1}, []int64{a.Queued, a.Blocked, a.Unserved})
	for _, b := range a.Budgets {
		require.Equal(t, map[string]int64{"linux": 3}[b.Platform], b.Blocked, b.Platform)
	}
	_, err = d.Suspend(t.Context(), "acme", "unpaid")
	require.NoError(t, err)
	require.Equal(t, map[string][]int64{"blocked suspended": {15, 14, 13, 12, 11}, "no_pool ": {16}}, states())
	a = account()
	require.Equal(t, []int64{0, 5, 1}, []int64{a.Queued, a.Blocked, a.Unserved})
}

// CLAIM-21: jobs that no pool serves are a problem with its remedy, and jobs for GitHub's own runners are none.
func TestStatus_CLAIM21_NamesJobsThatNoPoolServes(t *testing.T) {
	d := newDesk(t)
	d.fleet.lanes = d.store
	show := func() string {
		t.Helper()
		pools, err := d.Pools(t.Context())
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, cli.PrintStatus(&out, cli.FormatTable, cli.Sum(pools, nil), time.Now()))
		return out.String()
	}
	ask := func(id int64, labels ...string) {
		d.tell(fleet.JobEventQueued, id, func(ev *dispatch.JobEvent) { ev.Labels = labels })
	}
	ask(1, "linux-4")
	ask(2, "ubuntu-latest")
	ask(3, "windows-2025")
	require.Contains(t, show(), "All is well.\n")
	require.Contains(t, show(), "0 blocked, 2 for GitHub's own runners\n")

	ask(4, "linx-4")
	ask(5, "self-hosted", "linux", "x64")
	ask(6, "self-hosted", "linux", "x64")
	require.Contains(t, show(), "2 problems:\n")
	require.Contains(t, show(), "  - 1 job queued for labels that no pool serves: linx-4. Nearest: pool linux-4 has linux-4, not linx-4. "+
		"Write `runs-on: linux-4` in the workflow, or add linx-4 to spec.labels of pool linux-4.\n")
	require.Contains(t, show(), "  - 2 jobs queued for labels that no pool serves: linux, self-hosted, x64. "+
		"Write the label of a pool in runs-on, such as linux-4, or add a RunnerPool with these labels.\n")
	require.Regexp(t, `0 blocked, 3 with no pool \(oldest 1m0\ds\), 2 for GitHub's own runners\n`, show())

	pools, err := d.Pools(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, pools.Unserved.Jobs)
	require.EqualValues(t, 2, pools.Unserved.GitHubHosted)
	require.Len(t, pools.Unserved.LabelSets, 2)
	d.fleet.pools = append(d.fleet.pools, dispatch.Pool{Namespace: "runners", Name: "generic", Labels: []string{"self-hosted", "linux", "x64", "linx-4"}})
	require.Contains(t, show(), "All is well.\n", "a pool was added that serves them")
}

// Runners are listed with their jobs, by pool and stage, page after page.
func TestRunners_AreListedWithTheirJobs(t *testing.T) {
	d := newDesk(t)
	twoPools(d)
	pod := func(pool, name, uid string, change func(*admin.RunnerPod)) {
		p := admin.RunnerPod{
			Pod:  dispatch.Pod{Namespace: "runners", Name: name, UID: uid, Pool: dispatch.PoolRef{Namespace: "runners", Name: pool}},
			Node: "node-1", CreatedAt: time.Now().Add(-time.Hour), Ready: true,
		}
		if change != nil {
			change(&p)
		}
		d.fleet.pods = append(d.fleet.pods, p)
	}
	for n := range 1200 { // more than two pages
		pod("macos", fmt.Sprintf("macos-%04d", n), fmt.Sprintf("uid-%d", n), func(p *admin.RunnerPod) { p.Ready = n%2 == 0 })
	}
	pod("linux-4", "linux-4-b", podUIDs["linux-4-b"], nil)
	pod("linux-4", "linux-4-a", podUIDs["linux-4-a"], nil)
	d.tell(fleet.JobEventQueued, 7)
	d.claim("linux-4-a")

	runners, err := d.Runners(t.Context(), cli.RunnerFilter{Pool: "linux-4", Most: 10})
	require.NoError(t, err)
	require.Len(t, runners, 2)
	require.Equal(t, "assigned", runners[0].Stage)
	require.EqualValues(t, 7, runners[0].JobID)
	require.Equal(t, "acme", runners[0].Account)
	require.Equal(t, "idle", runners[1].Stage)
	var shown bytes.Buffer
	require.NoError(t, cli.Print(&shown, cli.FormatTable, runners, cli.RunnerTable(runners, time.Now())))
	require.Regexp(t, `(?m)^linux-4-a +linux-4 +assigned +acme +7 +0\.\ds +node-1 +1h00m$`, shown.String())

	all, err := d.Runners(t.Context(), cli.RunnerFilter{Most: 5000})
	require.NoError(t, err)
	require.Len(t, all, 1202)
	seen := map[string]bool{}
	for _, r := range all {
		require.False(t, seen[r.Name], "%s twice", r.Name)
		seen[r.Name] = true
	}
	idle, err := d.Runners(t.Context(), cli.RunnerFilter{Stages: []string{"idle", "assigned"}, Most: 5000})
	require.NoError(t, err)
	require.Len(t, idle, 602)
	few, err := d.Runners(t.Context(), cli.RunnerFilter{Stages: []string{"idle"}, Pool: "runners/macos", Most: 7})
	require.NoError(t, err)
	require.Len(t, few, 7)

	there, err := d.Runners(t.Context(), cli.RunnerFilter{Namespace: "runners", Pool: "linux-4", Most: 10})
	require.NoError(t, err)
	require.Len(t, there, 2)
	elsewhere, err := d.Runners(t.Context(), cli.RunnerFilter{Namespace: "elsewhere", Most: 10})
	require.NoError(t, err)
	require.Empty(t, elsewhere)
	require.Equal(t, []adminapi.Pool{{Namespace: "b", Name: "x"}}, cli.PoolsIn("b", &cli.LabelSelector{}, []adminapi.Pool{{Namespace: "a", Name: "x"}, {Namespace: "b", Name: "x"}}))

	_, err = d.Runners(t.Context(), cli.RunnerFilter{Pool: "windows", Most: 1})
	require.ErrorContains(t, err, "pool \"windows\" not found. `bullpen pools` lists pools.")
	_, err = d.Runners(t.Context(), cli.RunnerFilter{Stages: []string{"asleep"}, Most: 1})
	require.ErrorContains(t, err, "stage must be one of starting, idle, assigned, registered, busy, terminating, finished")
}
