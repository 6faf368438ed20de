package why

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fine is a queued job that nothing keeps from running, changed.
func fine(change ...func(*Evidence)) Evidence {
	pool := dispatch.Pool{Namespace: "runners", Name: "linux-4", Labels: []string{"linux-4"}, Platform: fleet.Linux, Shape: fleet.Shape{MilliCPU: 4000, MemoryMB: 8192}}
	e := Evidence{
		Now:     t0,
		Job:     Job{ID: 7, State: fleet.JobQueued, Repository: "acme/app", Labels: []string{"linux-4"}, QueuedAt: t0.Add(-time.Minute)},
		Pools:   []dispatch.Pool{pool, {Namespace: "runners", Name: "gpu", Labels: []string{"gpu", "cuda"}, Platform: fleet.Linux}},
		Account: Account{Login: "acme", Installed: true},
		Budget:  Budget{Limits: fleet.Limits{MilliCPU: 32_000, MemoryMB: 64 * 1024, Jobs: 40}},
		Pool:    Pool{Ref: pool.Ref(), Platform: pool.Platform, Shape: pool.Shape, Desired: 5, Replicas: 5, Idle: 5},
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

// Each code with the evidence that brings it about, and its sentence.
func TestExplain(t *testing.T) {
	claim := func(change func(*Claim)) func(*Evidence) {
		return func(e *Evidence) {
			e.Job.State = fleet.JobMinted
			e.Claim = &Claim{Pod: "linux-4-x7k2p", Pool: "linux-4", State: fleet.ClaimMinted, ClaimedAt: t0.Add(-9 * time.Second), MintedAt: t0.Add(-8 * time.Second)}
			change(e.Claim)
		}
	}
	for name, c := range map[string]struct {
		change func(*Evidence)
		code   Code
		says   string
	}{
		"never heard of": {func(e *Evidence) { e.Job.State = fleet.JobAbsent }, UnknownJob, "Unknown job 7: no webhook received, and it is not in GitHub's queue."},
		"forgotten":      {func(e *Evidence) { e.Job.State, e.Tombstone = fleet.JobAbsent, true }, Forgotten, "Job 7 completed"},
		"ended": {func(e *Evidence) {
			e.Job.State, e.Job.Conclusion, e.Job.RunnerName, e.Job.EndedAt = fleet.JobCompleted, "failure", "r1", t0
		}, Completed, "Failed on runner r1 at 2026-03-01 12:00:00 UTC."},
		"skipped": {func(e *Evidence) { e.Job.State, e.Job.Conclusion, e.Job.EndedAt = fleet.JobCompleted, "skipped", t0 }, Completed,
			"Skipped at 2026-03-01 12:00:00 UTC; it never needed a runner."},
		"another conclusion": {func(e *Evidence) {
			e.Job.State, e.Job.Conclusion, e.Job.EndedAt = fleet.JobCompleted, "action_required", t0
		}, Completed,
			"Completed with conclusion action_required at 2026-03-01 12:00:00 UTC."},
		"cancelled": {func(e *Evidence) { e.Job.State, e.Job.EndedAt = fleet.JobCancelled, t0 }, Completed, "Cancelled at"},
		"stale":     {func(e *Evidence) { e.Job.State = fleet.JobStale }, Completed, "Marked stale: GitHub has not reported it as queued for 24 hours."},
		"runs":      {func(e *Evidence) { e.Job.State, e.Job.RunnerName, e.Job.StartedAt = fleet.JobExecuting, "r1", t0 }, Running, "Running on r1 since"},
		"its runner was killed": {func(e *Evidence) {
			e.Job.State, e.Job.RunnerName, e.Job.StartedAt, e.Job.RunnerExit = fleet.JobExecuting, "r1", t0, "code 137 (SIGKILL)"
		}, RunnerExited, "It started on r1 at 2026-03-01 12:00:00 UTC. That runner exited with code 137 (SIGKILL), and GitHub has not reported the job as completed yet."},
		"its runner was lost": {func(e *Evidence) {
			e.Job.State, e.Job.RunnerName, e.Job.StartedAt, e.Job.LostAt = fleet.JobExecuting, "r1", t0, t0.Add(time.Minute)
		}, RunnerExited, "That runner was lost at 2026-03-01 12:01:00 UTC"},
		"approval":              {func(e *Evidence) { e.Job.State = fleet.JobWaiting }, PendingApproval, "it needs an approval"},
		"no pool":               {func(e *Evidence) { e.Job.Labels = []string{"gpu", "h100"} }, NoPool, "No pool has all of its labels (gpu, h100). Nearest: pool gpu lacks h100."},
		"none near":             {func(e *Evidence) { e.Job.Labels = []string{"windows"} }, NoPool, "No pool has all of its labels (windows)."},
		"bare label":            {func(e *Evidence) { e.Job.Labels = []string{"self-hosted"} }, NoPool, "No pool has all of its labels (self-hosted)."},
		"one too many":          {func(e *Evidence) { e.Job.Labels = []string{"self-hosted", "linux-4"} }, NoPool, "Nearest: pool linux-4 lacks self-hosted."},
		"misspelt":              {func(e *Evidence) { e.Job.Labels = []string{"linx-4"} }, NoPool, "No pool has all of its labels (linx-4). Nearest: pool linux-4 has linux-4, not linx-4."},
		"CLAIM-21 GitHub's own": {func(e *Evidence) { e.Job.Labels, e.Outside = []string{"ubuntu-latest"}, fleet.OutsideGitHub }, GitHubHosted, "It is for GitHub's own runners (ubuntu-latest)."},
		"CLAIM-21 a pool has GitHub's label": {func(e *Evidence) {
			e.Job.Labels, e.Outside, e.Pools[0].Labels = []string{"ubuntu-latest"}, fleet.OutsideGitHub, []string{"ubuntu-latest"}
		}, AboutToBeClaimed, "The next idle runner of pool linux-4 takes it."},
		"another fleet's": {func(e *Evidence) { e.Job.Labels, e.Outside = []string{"self-hosted", "arc"}, fleet.OutsideOther }, OtherRunners, "It is for runners outside of RunnerPools (self-hosted, arc)"},
		"group alone": {func(e *Evidence) { e.Job.Labels, e.Pools[0].RunnerGroup = nil, "builders" }, NoLabels,
			"pool linux-4 has the labels linux-4 and runner group builders"},
		"several": {func(e *Evidence) { e.Pools = append(e.Pools, dispatch.Pool{Name: "copy", Labels: []string{"LINUX-4"}}) }, SeveralPools, "Several pools have its labels (linux-4): copy, linux-4."},
		"leaving": {func(e *Evidence) { e.Pools[0].Terminating = true }, NoPool, "Nearest: pool linux-4 is being deleted."},

		"uninstalled":         {func(e *Evidence) { e.Account.Installed = false }, NotInstalled, "no longer installed at acme"},
		"suspended at GitHub": {func(e *Evidence) { e.Account.SuspendedByGitHub = true }, SuspendedByGitHub, "GitHub has suspended"},
		"suspended here":      {func(e *Evidence) { e.Account.SuspendedByAdministrator, e.Account.SuspensionReason = true, "unpaid" }, SuspendedByAdministrator, "An administrator has suspended acme: unpaid"},
		"repository taken":    {func(e *Evidence) { e.Job.BlockedBy = heldForRemoval }, RepositoryRemoved, "no longer has access to acme/app"},
		"repository at limit": {func(e *Evidence) {
			e.Job.BlockedBy, e.Budget.RepositoryUsage, e.Budget.Limits.JobsPerRepository = heldForLimit, 3, 3
		}, RepositoryAtLimit, "acme/app is at its limit: 3 of 3 jobs per repository of acme."},
		"label sets at limit": {func(e *Evidence) { e.Job.BlockedBy = heldForLabels }, LabelSetsAtLimit, "acme has queued or running jobs for 10000 different label sets"},
		"jobs at limit":       {func(e *Evidence) { e.Budget.Usage.Jobs = 40 }, AccountAtLimit, "acme is at its limit on linux: it runs 40 of 40 jobs."},
		"CPUs at limit":       {func(e *Evidence) { e.Budget.Usage.MilliCPU = 28_500 }, AccountAtLimit, "it uses 28.5 of 32 CPUs, and a runner needs 4."},
		"memory at limit":     {func(e *Evidence) { e.Budget.Usage.MemoryMB = 60_000 }, AccountAtLimit, "it uses 60000 of 65536 MiB of memory, and a runner needs 8192."},
		"never fits":          {func(e *Evidence) { e.Budget.Limits.MilliCPU = 2000 }, TooLarge, "A runner of pool linux-4 exceeds the limits of acme on linux: it uses 0 of 2 CPUs, and a runner needs 4."},
		"no job allowed":      {func(e *Evidence) { e.Budget.Limits.Jobs = 0 }, TooLarge, "acme cannot run jobs on linux: its limit of jobs is 0."},
		"rate limit":          {func(e *Evidence) { e.Mint = Mint{Until: t0.Add(time.Minute), Limited: true} }, GitHubLimit, "exhausted until 2026-03-01 12:01:00 UTC"},
		"GitHub fails":        {func(e *Evidence) { e.Mint = Mint{Until: t0.Add(time.Minute), Why: "403 Resource not accessible"} }, GitHubFailing, "(403 Resource not accessible); the next attempt is at 2026-03-01 12:01:00 UTC"},
		"GitHub failed elsewhere": {func(e *Evidence) {
			e.Refusals = []dispatch.Refusal{{Reason: dispatch.Refused, Status: 401, Message: "Bad credentials", Waits: true, Next: t0.Add(time.Minute)}}
		}, GitHubFailing, "GitHub rejects registrations for acme (status 401: Bad credentials); the next attempt is at 2026-03-01 12:01:00 UTC"},
		"pool refused": {func(e *Evidence) {
			e.Mint = Mint{Until: t0.Add(time.Minute), Pool: true, Status: 422, Why: "Invalid labels"}
		}, PoolRefused,
			"GitHub rejects registrations of pool linux-4 for acme (status 422: Invalid labels)"},
		"repository refused": {func(e *Evidence) {
			e.Job.BlockedBy = "refused"
			e.Refusals = []dispatch.Refusal{{
				Repository: "acme/app", Pool: e.Pool.Ref, Reason: dispatch.Refused, Status: 403, Message: "Resource not accessible by integration", Waits: true, Next: t0.Add(time.Minute),
			}}
		}, RepositoryRefused, "for acme/app (status 403: Resource not accessible by integration); the next attempt is at 2026-03-01 12:01:00 UTC"},
		"job refused": {func(e *Evidence) {
			e.Job.BlockedBy = "refused_job"
			e.Refusals = []dispatch.Refusal{{Repository: "acme/app", Pool: e.Pool.Ref, JobID: 7, Reason: dispatch.Refused, Status: 422, Waits: true, Next: t0.Add(time.Minute)}}
		}, JobRefused, "for this job (status 422); the next attempt is at"},
		"group closed": {func(e *Evidence) {
			e.Job.BlockedBy = "refused"
			e.Refusals = []dispatch.Refusal{{
				Repository: "acme/app", Pool: e.Pool.Ref, Reason: dispatch.NotAssigned, Failures: 2, Message: "runner group builders is open to selected repositories only, and acme/app is none of them",
				Waits: true, Next: t0.Add(time.Minute),
			}}
		}, GroupClosed, "GitHub assigned no job of acme/app to the last 2 runners of pool linux-4: runner group builders is open to selected repositories only"},
		"no runner group": {func(e *Evidence) { e.Mint = Mint{Until: t0.Add(time.Minute), Group: "builders"} }, NoRunnerGroup, "acme has no runner group builders, which pool linux-4 uses."},
		"ledger frozen":   {func(e *Evidence) { e.Frozen = "the database was restored." }, LedgerFrozen, "the database was restored"},
		"saturated":       {func(e *Evidence) { e.Pool.Idle, e.Pool.Saturated, e.Ahead = 0, "At capacity.", 2 }, PoolSaturated, "Pool linux-4 is full. At capacity. 2 jobs from acme are ahead of it in the queue."},
		"starved":         {func(e *Evidence) { e.Pool.Idle, e.Pool.Starved = 0, "no node fits" }, PoolStarved, "Pool linux-4 cannot start more runners: no node fits"},
		"no runners":      {func(e *Evidence) { e.Pool.Idle, e.Pool.Desired, e.Pool.Replicas = 0, 0, 0 }, PoolEmpty, "Pool linux-4 has 0 desired runners."},
		"starting":        {func(e *Evidence) { e.Pool.Idle, e.Pool.Starting = 0, 1 }, PoolStarting, "No runner of pool linux-4 is idle; 1 is starting."},
		"no image": {func(e *Evidence) {
			e.Pool.Idle, e.Pool.Starting, e.Pool.PullFailed = 0, 1, "failed on n1: manifest unknown"
		}, PoolStarting,
			"No runner of pool linux-4 is idle; 1 is starting. A node cannot pull the pool's images: failed on n1: manifest unknown."},
		"busy":          {func(e *Evidence) { e.Pool.Idle, e.Pool.Busy = 0, 5 }, PoolSaturated, "No runner of pool linux-4 is idle: 5 busy."},
		"behind":        {func(e *Evidence) { e.Ahead = 1 }, BehindOthers, "1 job from acme is ahead of it in the queue."},
		"nothing":       {func(*Evidence) {}, AboutToBeClaimed, "The next idle runner of pool linux-4 takes it."},
		"registering":   {claim(func(c *Claim) { c.State = fleet.ClaimClaimed }), Registering, "Runner linux-4-x7k2p of pool linux-4 was claimed for it 9s ago"},
		"runner starts": {claim(func(*Claim) {}), RunnerStarting, "Runner linux-4-x7k2p was registered 8s ago"},
		"not assigned":  {claim(func(c *Claim) { c.AcknowledgedAt = t0.Add(-3 * time.Second) }), NotAssigned, "Runner linux-4-x7k2p got its configuration 3s ago"},
		"registering, limited": {func(e *Evidence) {
			claim(func(c *Claim) { c.State = fleet.ClaimClaimed })(e)
			e.Mint = Mint{Until: t0.Add(time.Minute), Limited: true}
		}, GitHubLimit, "request quota"},
	} {
		t.Run(name, func(t *testing.T) {
			reasons := Explain(fine(c.change))
			require.NotEmpty(t, reasons)
			require.Equal(t, c.code, reasons[0].Code)
			require.Contains(t, reasons[0].Sentence, c.says)
		})
	}
}

// All causes are reported together, the one that must be removed first in front.
func TestExplain_TellsEveryCause(t *testing.T) {
	reasons := Explain(fine(func(e *Evidence) {
		e.Budget.Usage.Jobs, e.Account.SuspendedByGitHub, e.Pool.Idle, e.Pool.Starting = 40, true, 0, 2
	}))
	var codes []Code
	for _, r := range reasons {
		codes = append(codes, r.Code)
	}
	require.Equal(t, []Code{SuspendedByGitHub, AccountAtLimit, PoolStarting}, codes)
}

// CLAIM-21: nothing that Bullpen lacks is named beside a job that is not for Bullpen.
func TestExplain_CLAIM21_GitHubsOwnJobsHaveOneReason(t *testing.T) {
	reasons := Explain(fine(func(e *Evidence) {
		e.Job.Labels, e.Outside = []string{"ubuntu-latest"}, fleet.OutsideGitHub
		e.Budget.Usage.Jobs, e.Account.SuspendedByGitHub, e.Frozen = 40, true, "the database was restored."
	}))
	require.Len(t, reasons, 1)
	require.Equal(t, GitHubHosted, reasons[0].Code)
}
