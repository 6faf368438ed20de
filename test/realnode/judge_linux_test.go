package realnode

import (
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
)

// account is what the phases have done that the judgment has to know. Phases share it.
type account struct {
	mu      sync.Mutex
	jobs    int
	stopped map[string]bool // UIDs of pods that the test stopped with their grace period, whatever they were doing
	ran     map[string]bool // commands of guides
}

func (a *account) run(command string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ran[command] = true
}

func (a *account) add(jobs int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs += jobs
}

func (a *account) submitted() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.jobs
}

// stop notes a pod that is about to be stopped.
func (a *account) stop(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped[uid] = true
}

// removals leaves out those of stopped pods: a job that runs then has the grace period, and has to succeed like every other.
func (a *account) removals(seen []onebox.Removal) []onebox.Removal {
	a.mu.Lock()
	defer a.mu.Unlock()
	var fleets []onebox.Removal
	for _, removal := range seen {
		if !a.stopped[removal.UID] {
			fleets = append(fleets, removal)
		}
	}
	return fleets
}

// judge counts the outcome of all jobs, by GitHub's ledger and by the deletions that the API server showed.
func (w *world) judge() {
	ledger, err := w.github.Admin.Ledger(w.Context())
	require.NoError(w, err)
	evidence := onebox.Evidence{WantJobs: w.account.submitted(), Removals: w.account.removals(w.witness.seen()), Runners: map[string]int{"bullpen": 6}, Expected: func(key string) string {
		switch id, _, _ := strings.Cut(key, "/"); id {
		case "expected-failure":
			return "failure"
		case "after-failure":
			return "skipped"
		case onLostNode:
			return "failure"
		default:
			return "success"
		}
	}}
	for _, job := range ledger.Jobs {
		if _, soak := soakNumber(job.JobView); soak { // they have a judge of their own
			continue
		}
		if job.Key == onLostNode { // no fleet keeps a job whose machine has lost its power
			require.True(w, job.VanishedMidJob, "%s", job.Name)
			job.Lost = false
		} else {
			require.False(w, job.VanishedMidJob, "%s", job.Name)
		}
		evidence.Jobs = append(evidence.Jobs, job.JobView)
		require.False(w, job.Cancelled, "%s", job.Name)
	}
	for _, runner := range ledger.Runners {
		require.Zero(w, runner.RemovedBusy, "%s was removed while it ran a job", runner.Name)
		require.NotNil(w, runner.RemovedAt, "%s is still registered", runner.Name)
	}
	verdict := onebox.Judge(evidence)
	w.Logf("%d jobs, %d as expected, killed mid-job: %d", verdict.Jobs, verdict.AsExpected, verdict.Killed)
	require.Empty(w, verdict.Problems)
	require.Zero(w, verdict.Killed)
	require.Empty(w, w.gate.lost(), "jobs whose connection broke")
	require.NotEmpty(w, evidence.Removals, "the witness saw something")
}
