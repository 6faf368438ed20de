package cli_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/why"
)

// knownFleet is what a server knows beside the ledger: one pool, and what GitHub allows.
type knownFleet struct {
	pools   []dispatch.Pool
	status  why.Pool
	until   time.Time
	limited bool
	held    string
	group   string // the account has no runner group of that name
	runners []dispatch.Pod
	changed []string // the pods that it was notified of

	described []adminapi.Pool
	pods      []admin.RunnerPod
	demand    []runnerapi.PoolSignals
	unread    error // why the demand cannot be read
	lanes     dispatch.UnservedStore
	backlog   *ledger.Store // nil: no demand is read from it
}

func newKnownFleet() *knownFleet {
	pool := dispatch.Pool{Namespace: "runners", Name: "linux-4", Labels: []string{"linux-4"}, Platform: fleet.Linux, Shape: fleet.Shape{MilliCPU: 4000, MemoryMB: 8192}}
	return &knownFleet{
		pools:  []dispatch.Pool{pool},
		status: why.Pool{Ref: pool.Ref(), Platform: pool.Platform, Shape: pool.Shape, Desired: 3, Replicas: 3, Idle: 3},
	}
}

func (f *knownFleet) Pools() []dispatch.Pool { return f.pools }

func (f *knownFleet) PoolStatus(ref dispatch.PoolRef) (why.Pool, bool) {
	return f.status, ref == f.status.Ref
}

func (f *knownFleet) Backoff(dispatch.Account) (time.Time, bool) { return f.until, f.limited }

func (f *knownFleet) PoolRefused(dispatch.PoolRef, int64) (dispatch.PoolRefusal, bool) {
	return dispatch.PoolRefusal{Group: f.group, Until: f.until}, f.group != ""
}

func (f *knownFleet) DescribePools() []adminapi.Pool { return slices.Clone(f.described) }

func (f *knownFleet) PodsOfPool(ref dispatch.PoolRef) []admin.RunnerPod {
	return slices.DeleteFunc(slices.Clone(f.pods), func(p admin.RunnerPod) bool { return ref.Name != "" && p.Pool != ref })
}

func (f *knownFleet) Demand(context.Context) ([]runnerapi.PoolSignals, error) {
	return f.demand, f.unread
}

func (f *knownFleet) Lanes(ctx context.Context) (map[dispatch.LaneRef]dispatch.LaneDemand, error) {
	if f.backlog == nil || f.unread != nil {
		return nil, f.unread
	}
	keys, err := f.backlog.LabelSetsFrom(ctx, "", 1000)
	if err != nil {
		return nil, err
	}
	sets := []dispatch.LabelSet{}
	for _, key := range keys {
		labels, _ := dispatch.LabelsOf(key)
		sets = append(sets, dispatch.LabelSet{Key: key, Labels: labels})
	}
	b, err := f.backlog.Backlog(ctx, keys, func(b dispatch.Backlog) []dispatch.Look { return dispatch.Looks(f.pools, sets, b) })
	return dispatch.Assess(f.pools, sets, b, nil).Lanes, err
}

func (f *knownFleet) Outside(labels []string) fleet.Outside {
	return fleet.OutsideRunners{GitHub: fleet.GitHubHosted()}.Of(labels)
}

func (f *knownFleet) Unserved(ctx context.Context) (dispatch.Unserved, error) {
	if f.lanes == nil {
		return dispatch.Unserved{}, f.unread
	}
	lanes, err := f.lanes.UnservedLanes(ctx, nil)
	return dispatch.FindUnserved(f.pools, fleet.OutsideRunners{GitHub: fleet.GitHubHosted()}, lanes), err
}

func (*knownFleet) Hosts() ([]adminapi.Host, bool) { return nil, false }

func (f *knownFleet) Frozen() (string, bool) { return f.held, f.held != "" }

func (f *knownFleet) Runner(namespace, name string) (dispatch.Pod, bool) {
	i := slices.IndexFunc(f.runners, func(p dispatch.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return dispatch.Pod{}, false
	}
	return f.runners[i], true
}

func (f *knownFleet) ClaimChanged(podUID string) { f.changed = append(f.changed, podUID) }

// tell records what GitHub says of a job.
func (d *desk) tell(kind fleet.JobEvent, id int64, change ...func(*dispatch.JobEvent)) {
	d.t.Helper()
	now := time.Now()
	ev := dispatch.JobEvent{
		Kind: kind, Account: dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}, JobID: id, Repository: "acme/app", RunID: 9, RunAttempt: 1,
		Name: "build", Workflow: "ci", HeadBranch: "main", HeadSHA: "abc", Labels: []string{"linux-4"}, QueuedAt: now.Add(-time.Minute),
	}
	switch kind {
	case fleet.JobEventStarted:
		ev.StartedAt, ev.RunnerName = now, "elsewhere"
	case fleet.JobEventCompleted:
		ev.StartedAt, ev.CompletedAt, ev.RunnerName, ev.Conclusion = now.Add(-time.Second), now, "elsewhere", "success"
	}
	for _, c := range change {
		c(&ev)
	}
	_, err := d.store.RecordJob(d.t.Context(), dispatch.Delivery{Event: "workflow_job", At: now}, ev)
	require.NoError(d.t, err)
}

var podUIDs = map[string]string{"linux-4-a": "00000000-0000-4000-8000-00000000000a", "linux-4-b": "00000000-0000-4000-8000-00000000000b"}

// claim has a pod claim the oldest job.
func (d *desk) claim(pod string) {
	d.t.Helper()
	result, err := d.store.ClaimBatch(d.t.Context(), dispatch.Batch{
		Pool: d.fleet.pools[0], LabelKeys: []string{dispatch.LabelKey([]string{"linux-4"})},
		Polls:   []dispatch.Poll{{Namespace: "runners", PodName: pod, PodUID: podUIDs[pod]}},
		Reserve: func(_ dispatch.Account, want int) int { return want }, Return: func(int64, int) {}, Lease: time.Minute, Now: time.Now(), Excluded: []int64{},
	})
	require.NoError(d.t, err)
	require.LessOrEqual(d.t, len(result.Claims), 1)
}

// Every answer is produced in a real ledger, requested from the API, and printed as the command prints it. The fleet's part is scripted
// with values that the server's own tests verify.
func TestWhy_EachAnswerIsTrue(t *testing.T) {
	queue := func(d *desk) { d.tell(fleet.JobEventQueued, 7) }
	limit := func(d *desk, change adminapi.LimitsChange) {
		_, err := d.ChangeLimits(d.t.Context(), "acme", "*", adminapi.ChangeLimits{Platforms: map[string]adminapi.LimitsChange{"linux": change}})
		require.NoError(d.t, err)
	}
	mint := func(d *desk) {
		queue(d)
		d.claim("linux-4-a")
		claim, err := d.store.Claim(d.t.Context(), podUIDs["linux-4-a"])
		require.NoError(d.t, err)
		ok, err := d.store.Intend(d.t.Context(), claim.PodUID, claim.Generation, "runner-1", fleet.Scope{Owner: "acme"}, time.Now())
		require.NoError(d.t, err)
		require.True(d.t, ok)
		ok, err = d.store.RecordMint(d.t.Context(), claim.PodUID, claim.Generation, 4711, time.Now())
		require.NoError(d.t, err)
		require.True(d.t, ok)
	}
	for code, c := range map[why.Code]struct {
		given func(d *desk)
		says  string
	}{
		why.UnknownJob:      {func(*desk) {}, "Unknown job 7: no webhook received"},
		why.Completed:       {func(d *desk) { queue(d); d.tell(fleet.JobEventCompleted, 7) }, "Succeeded on runner elsewhere at "},
		why.Running:         {func(d *desk) { queue(d); d.tell(fleet.JobEventStarted, 7) }, "Running on elsewhere since "},
		why.PendingApproval: {func(d *desk) { d.tell(fleet.JobEventWaiting, 7) }, "it needs an approval"},
		why.NoPool: {func(d *desk) {
			d.tell(fleet.JobEventQueued, 7, func(ev *dispatch.JobEvent) { ev.Labels = []string{"linux-4", "gpu"} })
		}, "No pool has all of its labels (linux-4, gpu). Nearest: pool linux-4 lacks gpu."},
		why.GitHubHosted: {func(d *desk) {
			d.tell(fleet.JobEventQueued, 7, func(ev *dispatch.JobEvent) { ev.Labels = []string{"ubuntu-latest"} })
		}, "It is for GitHub's own runners (ubuntu-latest)."},
		why.SeveralPools: {func(d *desk) {
			queue(d)
			d.fleet.pools = append(d.fleet.pools, dispatch.Pool{Namespace: "runners", Name: "copy", Labels: []string{"linux-4"}})
		}, "Several pools have its labels (linux-4): copy, linux-4."},
		why.PoolPaused:        {func(d *desk) { queue(d); d.fleet.pools[0].Paused, d.fleet.pools[0].PausedNote = true, "by ada: disks" }, "Pool linux-4 is paused or drained (by ada: disks)."},
		why.NotInstalled:      {func(d *desk) { queue(d); d.install("deleted", 1, "acme") }, "no longer installed at acme"},
		why.SuspendedByGitHub: {func(d *desk) { queue(d); d.installed("suspend", true) }, "GitHub has suspended"},
		why.SuspendedByAdministrator: {func(d *desk) {
			queue(d)
			_, err := d.Suspend(d.t.Context(), "acme", "unpaid")
			require.NoError(d.t, err)
		}, "An administrator has suspended acme: unpaid."},
		why.RepositoryRemoved: {func(d *desk) {
			queue(d)
			d.repositories(dispatch.RepositoriesRemoved, "acme/app")
		}, "no longer has access to acme/app"},
		why.RepositoryAtLimit: {func(d *desk) {
			limit(d, adminapi.LimitsChange{JobsPerRepository: ptr(1)})
			d.tell(fleet.JobEventQueued, 6, func(ev *dispatch.JobEvent) { ev.QueuedAt = ev.QueuedAt.Add(-time.Minute) })
			queue(d)
			d.claim("linux-4-a")
			d.claim("linux-4-b")
		}, "acme/app is at its limit: 1 of 1 job per repository of acme."},
		why.AccountAtLimit: {func(d *desk) {
			limit(d, adminapi.LimitsChange{Jobs: ptr(1)})
			d.tell(fleet.JobEventQueued, 6, func(ev *dispatch.JobEvent) { ev.QueuedAt = ev.QueuedAt.Add(-time.Minute) })
			queue(d)
			d.claim("linux-4-a")
		}, "acme is at its limit on linux: it runs 1 of 1 job."},
		why.TooLarge:      {func(d *desk) { limit(d, adminapi.LimitsChange{MilliCPU: ptr(1000)}); queue(d) }, "A runner of pool linux-4 exceeds the limits of acme on linux"},
		why.GitHubLimit:   {func(d *desk) { queue(d); d.fleet.until, d.fleet.limited = time.Now().Add(time.Hour), true }, "GitHub's request quota for acme is exhausted until "},
		why.GitHubFailing: {func(d *desk) { queue(d); d.fleet.until = time.Now().Add(time.Hour) }, "GitHub rejects registrations for acme"},
		why.NoRunnerGroup: {func(d *desk) { queue(d); d.fleet.group, d.fleet.until = "builders", time.Now().Add(time.Minute) }, "acme has no runner group builders"},
		why.LedgerFrozen:  {func(d *desk) { queue(d); d.fleet.held = "the database was restored" }, "the database was restored."},
		why.PoolSaturated: {func(d *desk) { queue(d); d.fleet.status.Idle, d.fleet.status.Saturated = 0, "At capacity" }, "Pool linux-4 is full. At capacity."},
		why.PoolStarved: {func(d *desk) {
			queue(d)
			d.fleet.status.Idle, d.fleet.status.Starved = 0, "1 runner cannot be scheduled"
		}, "1 runner cannot be scheduled."},
		why.PoolEmpty: {func(d *desk) {
			queue(d)
			d.fleet.status.Idle, d.fleet.status.Desired, d.fleet.status.Replicas = 0, 0, 0
		}, "has 0 desired runners"},
		why.PoolStarting: {func(d *desk) { queue(d); d.fleet.status.Idle, d.fleet.status.Starting = 0, 2 }, "2 are starting"},
		why.BehindOthers: {func(d *desk) {
			d.tell(fleet.JobEventQueued, 6, func(ev *dispatch.JobEvent) { ev.QueuedAt = ev.QueuedAt.Add(-time.Minute) })
			queue(d)
		}, "1 job from acme is ahead of it in the queue."},
		why.AboutToBeClaimed: {queue, "The next idle runner of pool linux-4 takes it."},
		why.Registering:      {func(d *desk) { queue(d); d.claim("linux-4-a") }, "Runner linux-4-a of pool linux-4 was claimed for it"},
		why.RunnerStarting:   {mint, "Runner linux-4-a was registered"},
		why.NotAssigned: {func(d *desk) {
			mint(d)
			claim, err := d.store.Claim(d.t.Context(), podUIDs["linux-4-a"])
			require.NoError(d.t, err)
			ok, err := d.store.Acknowledge(d.t.Context(), claim.PodUID, claim.Generation, time.Now())
			require.NoError(d.t, err)
			require.True(d.t, ok)
		}, "Runner linux-4-a got its configuration"},
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			c.given(d)
			answer, err := d.Why(t.Context(), 7)
			require.NoError(t, err)
			require.Equal(t, string(code), answer.Reasons[0].Code, answer.Reasons)
			var shown bytes.Buffer
			require.NoError(t, cli.PrintWhy(&shown, answer, time.Now()))
			require.Contains(t, shown.String(), c.says)
			t.Log(shown.String())
		})
	}
}

// installed tells what has become of the App's installation.
func (d *desk) installed(action string, suspended bool) {
	d.t.Helper()
	_, err := d.store.RecordInstallation(d.t.Context(), dispatch.Delivery{Event: "installation", At: time.Now()}, dispatch.Installation{
		Action: action, Account: dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}, Suspended: suspended,
	})
	require.NoError(d.t, err)
}

func (d *desk) repositories(action string, names ...string) {
	d.t.Helper()
	_, err := d.store.RecordInstallation(d.t.Context(), dispatch.Delivery{Event: "installation_repositories", At: time.Now()}, dispatch.Installation{
		Action: action, Account: dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}, Repositories: names,
	})
	require.NoError(d.t, err)
}
