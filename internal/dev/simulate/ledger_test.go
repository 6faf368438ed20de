package simulate

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	postgres "github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// twin is one history, played on PostgreSQL and on the simulator's ledger.
type twin struct {
	t       *testing.T
	store   *postgres.Store
	ledger  *ledger
	pool    dispatch.Pool
	base    int64 // of the history's ids of accounts and jobs: histories share a database
	jobs    int64
	running []dispatch.Claim // as PostgreSQL has them
	queued  map[int64]dispatch.QueuedJob
}

func (w *twin) account(n int64) dispatch.Account {
	id := w.base + n
	return dispatch.Account{ID: id, Login: fmt.Sprintf("account-%d", id), InstallationID: id}
}

func (w *twin) record(ev dispatch.JobEvent) {
	_, err := w.store.RecordJob(w.t.Context(), dispatch.Delivery{GUID: uuid.NewString(), Event: "workflow_job", At: time.Now()}, ev)
	require.NoError(w.t, err)
}

// queue queues a job on both.
func (w *twin) queue(t *rapid.T, at int64) {
	w.put(w.account(rapid.Int64Range(1, 12).Draw(t, "account")), rapid.SampledFrom(w.pool.Labels).Draw(t, "label"),
		rapid.SampledFrom([]string{"/one", "/two"}).Draw(t, "repository"), at)
}

func (w *twin) put(a dispatch.Account, label, repository string, at int64) {
	w.jobs++
	job := dispatch.QueuedJob{
		ID: w.base + w.jobs, AccountID: a.ID, LabelKey: dispatch.LabelKey([]string{label}), QueuedAt: time.Unix(1_700_000_000+at, 0),
		Repository: a.Login + repository,
	}
	w.record(dispatch.JobEvent{
		Kind: fleet.JobEventQueued, Account: a, JobID: job.ID, Repository: job.Repository, RunID: 1, RunAttempt: 1, Name: "build",
		Workflow: "ci", HeadBranch: "main", HeadSHA: "abc", Labels: []string{label}, QueuedAt: job.QueuedAt,
	})
	w.queued[job.ID] = job
	w.ledger.add(job, []string{label})
}

// claim has both claim for that many pods, and requires that they choose the same jobs for the same pods.
func (w *twin) claim(t *rapid.T, polls int) {
	slots := int64(rapid.IntRange(0, 8).Draw(t, "slots")) // of each account's mints, in this batch
	batch := dispatch.Batch{
		Pool: w.pool, Excluded: []int64{}, Lease: time.Minute, Now: time.Now(),
		Reserve: func(_ dispatch.Account, want int) int { return min(want, int(slots)) }, Return: func(int64, int) {},
	}
	for _, label := range w.pool.Labels {
		batch.LabelKeys = append(batch.LabelKeys, dispatch.LabelKey([]string{label}))
	}
	if rapid.Bool().Draw(t, "exclude") {
		batch.Excluded = append(batch.Excluded, w.account(1).ID)
	}
	for range polls {
		uid := uuid.NewString()
		batch.Polls = append(batch.Polls, dispatch.Poll{Namespace: "runners", PodName: "pod-" + uid, PodUID: uid})
	}
	theirs, err := w.store.ClaimBatch(w.t.Context(), batch)
	require.NoError(t, err)
	ours := w.ledger.claim(batch)
	require.Equal(t, pairs(theirs.Claims), pairs(ours.Claims), "PostgreSQL's answer, and the simulator's")
	require.Equal(t, theirs.More, ours.More, "whether to ask again")
	w.running = append(w.running, theirs.Claims...)
}

// pairs are pods and their jobs, in the order of the pods.
func pairs(claims []dispatch.Claim) []string {
	out := make([]string, len(claims))
	for i, c := range claims {
		out[i] = fmt.Sprintf("%s: job %d of account %d", c.PodUID, c.JobID, c.Account.ID)
	}
	slices.Sort(out)
	return out
}

// end has one job end on both, and its pod with it, as the simulator's do.
func (w *twin) end(t *rapid.T) {
	if len(w.running) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.running)-1).Draw(t, "ending")
	c := w.running[i]
	w.running = slices.Delete(w.running, i, i+1)
	job := w.queued[c.JobID]
	w.record(dispatch.JobEvent{
		Kind: fleet.JobEventCompleted, Account: c.Account, JobID: c.JobID, Repository: c.Repository, RunID: 1, RunAttempt: 1, Name: "build",
		Workflow: "ci", Labels: w.pool.Labels[:1], Conclusion: "success", RunnerName: c.RunnerName, QueuedAt: job.QueuedAt,
	})
	require.NoError(t, w.store.PodStopped(w.t.Context(), c.PodUID, time.Now(), nil))
	w.ledger.end(job, w.pool)
}

// signals compares what both say that waits.
func (w *twin) signals(t *rapid.T) {
	pools := []dispatch.Pool{w.pool}
	var keys []string
	for _, set := range w.ledger.sets {
		keys = append(keys, set.Key)
	}
	theirs, err := w.store.Backlog(w.t.Context(), keys, func(b dispatch.Backlog) []dispatch.Look { return dispatch.Looks(pools, w.ledger.sets, b) })
	require.NoError(t, err)
	require.EqualValues(t, len(w.running), theirs.Runners[w.pool.Ref()].Claimed)
	ours := w.ledger.backlog(pools, theirs.Runners)
	require.Equal(t, dispatch.Demand(pools, w.ledger.sets, theirs, nil), dispatch.Demand(pools, w.ledger.sets, ours, nil))
}

// CLAIM-5: the simulator's queue is PostgreSQL's: for any jobs, ends and claims under any limits, both give the same jobs
// to the same pods, and ask for the same number of runners.
func TestLedger_CLAIM5_AnswersAsPostgres(t *testing.T) {
	store, err := postgres.Open(t.Context(), postgrestest.NewDatabase(t, postgres.Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	store.UseRepositoryCaps()
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() == checks.DefValue { // each history is hundreds of statements
		require.NoError(t, checks.Value.Set("20"))
		defer func() { _ = checks.Value.Set(checks.DefValue) }()
	}
	history := int64(0)
	rapid.Check(t, func(r *rapid.T) {
		history++
		name := fmt.Sprintf("pool-%d", history)
		w := &twin{
			t: t, store: store, ledger: newLedger(), base: history * 10_000, queued: map[int64]dispatch.QueuedJob{},
			pool: dispatch.Pool{
				Namespace: "runners", Name: name, Labels: []string{name, name + "-large"}, Platform: fleet.Linux,
				Shape: fleet.Shape{MilliCPU: 1000, MemoryMB: 1024}, RunnerGroupID: 1, FairShare: rapid.Bool().Draw(r, "fair"),
			},
		}
		for n := range int64(12) {
			a := w.account(n + 1)
			_, err := store.RecordInstallation(t.Context(), dispatch.Delivery{GUID: uuid.NewString(), Event: "installation", At: time.Now()},
				dispatch.Installation{Action: "created", Account: a})
			require.NoError(r, err)
			limits := fleet.Limits{
				MilliCPU: 1000 * rapid.Int64Range(1, 8).Draw(r, "cpu"), MemoryMB: 1 << 30, Jobs: rapid.Int64Range(0, 8).Draw(r, "limit"),
				JobsPerRepository: rapid.Int64Range(0, 2).Draw(r, "cap"),
			}
			require.NoError(r, store.SetLimits(t.Context(), a.ID, fleet.Linux, limits))
			w.ledger.admit(a, map[fleet.Platform]fleet.Limits{fleet.Linux: limits})
		}
		if rapid.Bool().Draw(r, "crowd") { // more lanes than a batch reads, so that their order decides
			for n := range int64(24) {
				w.put(w.account(n%12+1), w.pool.Labels[n/12], "/one", 30-n)
			}
		}
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			switch rapid.SampledFrom([]string{"queue", "queue", "claim", "end", "signals"}).Draw(r, "step") {
			case "queue":
				for range rapid.IntRange(1, 4).Draw(r, "jobs") {
					w.queue(r, rapid.Int64Range(0, 30).Draw(r, "at"))
				}
			case "claim":
				w.claim(r, rapid.IntRange(1, 12).Draw(r, "polls"))
			case "end":
				w.end(r)
			case "signals":
				w.signals(r)
			}
		}
	})
}

// A lane that is parked at its account's limit keeps the place in line of its oldest job, not of one that has long run: so
// SettleLanes has it.
func TestLedger_AParkedLaneTakesThePlaceOfItsOldestJob(t *testing.T) {
	l := newLedger()
	a := dispatch.Account{ID: 1, Login: "acme", InstallationID: 1}
	l.admit(a, map[fleet.Platform]fleet.Limits{fleet.Linux: {MilliCPU: 1000, MemoryMB: 1 << 20, Jobs: 1}})
	labels := []string{"linux"}
	key := dispatch.LabelKey(labels)
	job := func(id, at int64) dispatch.QueuedJob {
		return dispatch.QueuedJob{ID: id, AccountID: a.ID, LabelKey: key, QueuedAt: time.Unix(at, 0), Repository: "acme/one"}
	}
	batch := dispatch.Batch{
		Pool: dispatch.Pool{
			Namespace: "runners", Name: "linux", Labels: labels, Platform: fleet.Linux, Shape: fleet.Shape{MilliCPU: 1000, MemoryMB: 1},
		},
		LabelKeys: []string{key}, Polls: []dispatch.Poll{{PodUID: "pod"}},
		Reserve: func(_ dispatch.Account, want int) int { return want }, Return: func(int64, int) {},
	}
	l.add(job(1, 1), labels)
	require.Len(t, l.claim(batch).Claims, 1)
	l.add(job(2, 20), labels)
	require.Empty(t, l.claim(batch).Claims)

	lane := l.lanes[lanePlace{key, a.ID}]
	require.Equal(t, dispatch.ParkedLimit, lane.parked)
	require.Equal(t, time.Unix(20, 0), lane.head)
}
