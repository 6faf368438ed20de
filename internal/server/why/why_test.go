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
		"never heard of": {func(e *Evidence) { e.Job.State = fleet.JobAbsent }, NotHeardOf, "GitHub has not told of job 7"},
		"forgotten":      {func(e *Evidence) { e.Job.State, e.Tombstone = fleet.JobAbsent, true }, Forgotten, "Job 7 has ended"},
		"ended": {func(e *Evidence) {
			e.Job.State, e.Job.Conclusion, e.Job.RunnerName, e.Job.EndedAt = fleet.JobCompleted, "failure", "r1", t0
		}, Ended, "It has ended with failure on runner r1 at 2026-03-01 12:00:00 UTC."},
		"cancelled":    {func(e *Evidence) { e.Job.State, e.Job.EndedAt = fleet.JobCancelled, t0 }, Ended, "It was cancelled at"},
		"stale":        {func(e *Evidence) { e.Job.State = fleet.JobStale }, Ended, "Nothing was heard of it for a day"},
		"runs":         {func(e *Evidence) { e.Job.State, e.Job.RunnerName, e.Job.StartedAt = fleet.JobExecuting, "r1", t0 }, Running, "Runner r1 has executed it since"},
		"approval":     {func(e *Evidence) { e.Job.State = fleet.JobWaiting }, WaitingAtGitHub, "waits for an approval"},
		"no pool":      {func(e *Evidence) { e.Job.Labels = []string{"gpu", "h100"} }, NoPool, "No pool has all of its labels (gpu, h100). Nearest: pool gpu lacks h100."},
		"none near":    {func(e *Evidence) { e.Job.Labels = []string{"windows"} }, NoPool, "No pool has all of its labels (windows)."},
		"bare label":   {func(e *Evidence) { e.Job.Labels = []string{"self-hosted"} }, NoPool, "No pool has all of its labels (self-hosted)."},
		"one too many": {func(e *Evidence) { e.Job.Labels = []string{"self-hosted", "linux-4"} }, NoPool, "Nearest: pool linux-4 lacks self-hosted."},
		"group alone": {func(e *Evidence) { e.Job.Labels, e.Pools[0].RunnerGroup = nil, "builders" }, NoLabels,
			"pool linux-4 has the labels linux-4 and is in runner group builders"},
		"several": {func(e *Evidence) { e.Pools = append(e.Pools, dispatch.Pool{Name: "copy", Labels: []string{"LINUX-4"}}) }, SeveralPools, "Several pools have its labels (linux-4): copy, linux-4."},
		"leaving": {func(e *Evidence) { e.Pools[0].Terminating = true }, NoPool, "Nearest: pool linux-4 is being deleted."},

		"uninstalled":         {func(e *Evidence) { e.Account.Installed = false }, NotInstalled, "not installed at acme"},
		"suspended at GitHub": {func(e *Evidence) { e.Account.SuspendedByGitHub = true }, SuspendedByGitHub, "is suspended at GitHub"},
		"suspended here":      {func(e *Evidence) { e.Account.SuspendedByOperator, e.Account.SuspensionReason = true, "unpaid" }, SuspendedByOperator, "An operator has suspended acme: unpaid"},
		"repository taken":    {func(e *Evidence) { e.Job.Held = heldForRemoval }, RepositoryRemoved, "no access to acme/app"},
		"repository at limit": {func(e *Evidence) {
			e.Job.Held, e.Budget.RepositoryUsage, e.Budget.Limits.JobsPerRepository = heldForLimit, 3, 3
		}, RepositoryAtLimit, "acme/app runs 3 of the 3 jobs that a repository of acme may."},
		"label sets at limit": {func(e *Evidence) { e.Job.Held = heldForLabels }, LabelSetsAtLimit, "Jobs of acme wait or run for 10000 different sets of labels"},
		"jobs at limit":       {func(e *Evidence) { e.Budget.Usage.Jobs = 40 }, AccountAtLimit, "acme is at its limit on linux: it runs 40 of 40 jobs."},
		"CPUs at limit":       {func(e *Evidence) { e.Budget.Usage.MilliCPU = 28_500 }, AccountAtLimit, "it uses 28.5 of 32 CPUs, and a runner takes 4."},
		"memory at limit":     {func(e *Evidence) { e.Budget.Usage.MemoryMB = 60_000 }, AccountAtLimit, "it uses 60000 of 65536 MiB of memory, and a runner takes 8192."},
		"never fits":          {func(e *Evidence) { e.Budget.Limits.MilliCPU = 2000 }, TooLarge, "One runner of pool linux-4 is more than acme may use on linux: it uses 0 of 2 CPUs, and a runner takes 4."},
		"no job allowed":      {func(e *Evidence) { e.Budget.Limits.Jobs = 0 }, TooLarge, "acme may run nothing on linux: its limit of jobs is 0."},
		"rate limit":          {func(e *Evidence) { e.Mint = Mint{Until: t0.Add(time.Minute), Limited: true} }, GitHubLimit, "used up until 2026-03-01 12:01:00 UTC"},
		"GitHub fails":        {func(e *Evidence) { e.Mint = Mint{Until: t0.Add(time.Minute), Why: "403 Resource not accessible"} }, GitHubFailing, "(403 Resource not accessible); it is asked again at 2026-03-01 12:01:00 UTC"},
		"GitHub failed elsewhere": {func(e *Evidence) {
			e.Refusals = []dispatch.Refusal{{Reason: dispatch.Refused, Status: 401, Message: "Bad credentials", Waits: true, Next: t0.Add(time.Minute)}}
		}, GitHubFailing, "GitHub registers no runner for acme (status 401: Bad credentials); it is asked again at 2026-03-01 12:01:00 UTC"},
		"pool refused": {func(e *Evidence) {
			e.Mint = Mint{Until: t0.Add(time.Minute), Pool: true, Status: 422, Why: "Invalid labels"}
		}, PoolRefused,
			"GitHub registers no runner of pool linux-4 for acme (status 422: Invalid labels)"},
		"repository refused": {func(e *Evidence) {
			e.Job.Held = "refused"
			e.Refusals = []dispatch.Refusal{{
				Repository: "acme/app", Pool: e.Pool.Ref, Reason: dispatch.Refused, Status: 403, Message: "Resource not accessible by integration", Waits: true, Next: t0.Add(time.Minute),
			}}
		}, RepositoryRefused, "for jobs of acme/app (status 403: Resource not accessible by integration); it is asked again at 2026-03-01 12:01:00 UTC"},
		"job refused": {func(e *Evidence) {
			e.Job.Held = "refused_job"
			e.Refusals = []dispatch.Refusal{{Repository: "acme/app", Pool: e.Pool.Ref, JobID: 7, Reason: dispatch.Refused, Status: 422, Waits: true, Next: t0.Add(time.Minute)}}
		}, JobRefused, "for this job (status 422); it is asked again at"},
		"group closed": {func(e *Evidence) {
			e.Job.Held = "refused"
			e.Refusals = []dispatch.Refusal{{
				Repository: "acme/app", Pool: e.Pool.Ref, Reason: dispatch.NotAssigned, Failures: 2, Message: "runner group builders is open to selected repositories only, and acme/app is none of them",
				Waits: true, Next: t0.Add(time.Minute),
			}}
		}, GroupClosed, "GitHub gave none of the last 2 runners of pool linux-4 a job of acme/app: runner group builders is open to selected repositories only"},
		"no runner group": {func(e *Evidence) { e.Mint = Mint{Until: t0.Add(time.Minute), Group: "builders"} }, NoRunnerGroup, "acme has no runner group builders, in which pool linux-4 registers its runners."},
		"ledger held":     {func(e *Evidence) { e.Held = "the database was restored." }, LedgerHeld, "the database was restored"},
		"saturated":       {func(e *Evidence) { e.Pool.Idle, e.Pool.Saturated, e.Ahead = 0, "9 jobs wait.", 2 }, PoolSaturated, "Pool linux-4 is full: 9 jobs wait. 2 jobs of acme wait before it."},
		"starved":         {func(e *Evidence) { e.Pool.Idle, e.Pool.Starved = 0, "no node fits" }, PoolStarved, "Pool linux-4 wants more runners and gets none: no node fits"},
		"no runners":      {func(e *Evidence) { e.Pool.Idle, e.Pool.Desired, e.Pool.Replicas = 0, 0, 0 }, PoolEmpty, "Pool linux-4 is to have no runners."},
		"starting":        {func(e *Evidence) { e.Pool.Idle, e.Pool.Booting = 0, 1 }, PoolStarting, "No runner of pool linux-4 is idle; 1 is starting."},
		"busy":            {func(e *Evidence) { e.Pool.Idle, e.Pool.Busy = 0, 5 }, PoolSaturated, "No runner of pool linux-4 is idle: 5 work."},
		"behind":          {func(e *Evidence) { e.Ahead = 1 }, BehindOthers, "It is behind 1 job of acme that waited longer"},
		"nothing":         {func(*Evidence) {}, AboutToBeClaimed, "Nothing is in its way"},
		"registering":     {claim(func(c *Claim) { c.State = fleet.ClaimClaimed }), Registering, "Runner linux-4-x7k2p of pool linux-4 was claimed for it 9s ago"},
		"runner starts":   {claim(func(*Claim) {}), RunnerStarting, "Runner linux-4-x7k2p was registered for it 8s ago"},
		"not assigned":    {claim(func(c *Claim) { c.AcknowledgedAt = t0.Add(-3 * time.Second) }), NotAssigned, "Runner linux-4-x7k2p has had its configuration for 3s"},
		"registering, limited": {func(e *Evidence) {
			claim(func(c *Claim) { c.State = fleet.ClaimClaimed })(e)
			e.Mint = Mint{Until: t0.Add(time.Minute), Limited: true}
		}, GitHubLimit, "rate limit"},
	} {
		t.Run(name, func(t *testing.T) {
			reasons := Explain(fine(c.change))
			require.NotEmpty(t, reasons)
			require.Equal(t, c.code, reasons[0].Code)
			require.Contains(t, reasons[0].Sentence, c.says)
		})
	}
}

// What stands in the way together is told together, the cause that has to go first in front.
func TestExplain_TellsEveryCause(t *testing.T) {
	reasons := Explain(fine(func(e *Evidence) {
		e.Budget.Usage.Jobs, e.Account.SuspendedByGitHub, e.Pool.Idle, e.Pool.Booting = 40, true, 0, 2
	}))
	var codes []Code
	for _, r := range reasons {
		codes = append(codes, r.Code)
	}
	require.Equal(t, []Code{SuspendedByGitHub, AccountAtLimit, PoolStarting}, codes)
}
