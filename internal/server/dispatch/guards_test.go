package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// The guards here hold only when two things happen at one moment; each test brings that moment about.

// counted reports whether anything was counted under that name.
func counted(t *testing.T, registry *prometheus.Registry, name string) bool {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return true
		}
	}
	return false
}

// CLAIM-1: a job that an event is just ending is not claimed.
func TestClaimBatch_CLAIM1_JobThatIsEndingIsSkipped(t *testing.T) {
	h := newHarness(t)
	h.queue(1, 2)
	commit := ledgertest.Hold(t, h.url,
		`UPDATE workflow_jobs SET state = 'cancelled', completed_at = now() WHERE id = 1`)
	result, err := h.store.ClaimBatch(t.Context(), h.batch(h.pod("linux"), h.pod("linux")))
	require.NoError(t, err)
	commit()
	require.Len(t, result.Claims, 1)
	require.Equal(t, int64(2), result.Claims[0].JobID)
}

// CLAIM-5: a batch waits for another one of the same account, and counts what that one claimed.
func TestClaimBatch_CLAIM5_WaitsForTheAccountsOtherBatch(t *testing.T) {
	h := newHarness(t)
	require.NoError(t, h.store.SetLimits(t.Context(), acme.ID, fleet.Linux, fleet.Limits{MilliCPU: 1000, MemoryMB: 1024, Jobs: 1}))
	h.queue(1)
	commit := ledgertest.Hold(t, h.url, `SELECT 1 FROM account_limits WHERE account_id = 1 FOR UPDATE`,
		`INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, milli_cpu, memory_mb, claimed_at)
		 VALUES ('other', 'runners', 'other', 'linux', 'claimed', 1, 1, 'linux', 1000, 1024, now())`)
	done := make(chan dispatch.BatchResult, 1)
	b := h.batch(h.pod("linux"))
	go func() {
		result, err := h.store.ClaimBatch(context.Background(), b)
		if err != nil {
			t.Errorf("claiming: %v", err)
		}
		done <- result
	}()
	h.eventually("the batch waits, or is done", func() bool {
		return len(done) > 0 || ledgertest.Int(t, h.url, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	commit()
	require.Empty(t, await.Receive(t, done, "the batch returns").Claims, "the budget of one job is spent")
}

// CLAIM-3: a late in_progress of a finished job binds no runner, not even one that is alive.
func TestRecordJob_CLAIM3_LateInProgressBindsNoRunner(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	name := h.served(d, pod).JIT.Name
	h.record(job(fleet.JobEventCompleted, 2))
	h.record(job(fleet.JobEventStarted, 2, by(name)))
	require.Equal(t, fleet.ClaimMinted, h.claim(pod).State)
	require.Equal(t, int64(1), h.claim(pod).JobID)
	require.Equal(t, fleet.JobMinted, h.jobState(1))
}

// CLAIM-9: a runner takes one job. The job that GitHub named first stays, whatever names the runner again.
func TestRecordJob_CLAIM9_ExecutingRunnerKeepsItsJob(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	name := h.started(d, pod, 1).JIT.Name
	for _, kind := range []fleet.JobEvent{fleet.JobEventStarted, fleet.JobEventCompleted} {
		h.record(job(kind, 2, by(name)))
		require.Equal(t, fleet.ClaimExecuting, h.claim(pod).State)
		require.Equal(t, int64(1), h.claim(pod).JobID)
		require.Equal(t, fleet.JobExecuting, h.jobState(1))
	}
}

// CLAIM-6: three attempts, neither less nor more.
func TestAcknowledge_CLAIM6_GivesUpAfterThreeAttempts(t *testing.T) {
	h := newHarness(t)
	registry := prometheus.NewRegistry()
	d := h.replica(func(o *dispatch.Options) { o.Metrics, o.LabelTimeout = registry, time.Minute })
	h.cluster.OnStamp(func(dispatch.Pod) error { return dispatchtest.ErrAPIServer })
	h.queue(1)
	pod := h.pod("linux")
	answer := h.served(d, pod)
	_, err := d.Acknowledge(t.Context(), pod, answer.Generation)
	require.NoError(t, err)
	go d.Label(await.Context(t), pod)
	h.eventually("it gives up", func() bool {
		h.timers.fire(100 * time.Millisecond)
		return counted(t, registry, "bullpen_dispatch_owner_label_writes_total")
	})
	require.Len(t, h.cluster.Stamped(), 3)
}

// TEN-8: once the poller of a pod has exited, its runner may have started, and no event and no sweep writes its label. Other marks of the
// pod are written beside it (POOL-9). A poller that was turned away exits like one that was served; its pod has no owner.
func TestSweep_TEN8_NoLabelAfterThePollersEnd(t *testing.T) {
	h := newHarness(t)
	h.cluster.OnStamp(func(dispatch.Pod) error { return dispatchtest.ErrAPIServer })
	d := h.replica()
	h.queue(1)
	owned, retired := h.pod("linux"), h.pod("linux")
	answer := h.served(d, owned)
	_, err := d.Retire(t.Context(), []dispatch.Pod{retired})
	require.NoError(t, err)
	won, err := d.Acknowledge(t.Context(), owned, answer.Generation)
	require.NoError(t, err)
	require.True(t, won)
	labelled := make(chan struct{})
	go func() {
		defer close(labelled)
		d.Label(await.Context(t), owned)
	}()
	h.eventually("every attempt fails", func() bool {
		h.timers.fire(100 * time.Millisecond)
		return len(h.cluster.Stamped()) == 3
	})
	await.Receive(t, labelled, "the label is given up")
	attempts := len(h.cluster.Stamped())
	h.cluster.OnStamp(nil)
	noted := func(pod dispatch.Pod) int64 { now, _ := h.cluster.Pod(pod.UID); return now.OwnerID }
	h.eventually("its owner is noted", func() bool { return noted(owned) == acme.ID })

	h.cluster.ChangePod(owned.UID, func(p *dispatch.Pod) { p.PollerEnded, p.OwnerID = true, 0 }) // as if that had failed, too
	retired.PollerEnded = true
	h.cluster.PutPod(retired)
	d.PodChanged(retired)
	sweeping := h.replica() // another replica, which was away
	h.eventually("its sweep notes the owner", func() bool { return noted(owned) == acme.ID })
	late, _ := h.cluster.Pod(owned.UID)
	sweeping.PodChanged(late)
	sweeping.Label(t.Context(), late)
	require.Len(t, h.cluster.Stamped(), attempts, "a label appears in the middle of a job")
	require.Zero(t, noted(retired))
}

// TEN-8: the pod waits for its label, however busy the background is, and no longer than the bound, or than its request
// lasts.
func TestLabel_TEN8_IsWrittenBeforeTheAnswerEndsOrNever(t *testing.T) {
	h := newHarness(t)
	const bound = 7 * time.Second // of no other timer
	d := h.replica(func(o *dispatch.Options) { o.LabelTimeout = bound })
	h.queue(1, 2, 3)
	acknowledged := func() dispatch.Pod {
		pod := h.pod("linux")
		answer := h.served(d, pod)
		won, err := d.Acknowledge(t.Context(), pod, answer.Generation)
		require.NoError(t, err)
		require.True(t, won)
		require.Empty(t, h.cluster.StampAttempts(pod.UID), "the answer's status is not sent yet")
		return pod
	}
	d.Label(t.Context(), acknowledged())
	labelled := h.cluster.Stamped()
	require.Len(t, labelled, 1)

	hung := make(chan struct{})
	h.cluster.OnStamp(func(dispatch.Pod) error { await.OrEnd(t, hung); return dispatchtest.ErrAPIServer })
	slow := acknowledged()
	go func() {
		h.eventually("an attempt", func() bool { return h.cluster.StampAttempts(slow.UID) == 1 })
		h.timers.fire(bound)
		close(hung)
	}()
	await.Return(t, func() { d.Label(t.Context(), slow) }, "a label that fails is given up at the bound")
	require.Equal(t, 1, h.cluster.StampAttempts(slow.UID), "there was no time for another attempt")

	h.cluster.OnStamp(nil)
	gone := acknowledged()
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	d.Label(ctx, gone)
	require.Zero(t, h.cluster.StampAttempts(gone.UID), "the pod has stopped waiting, and may have started its runner")
}

// CLAIM-14: a pool that finds an account's rate limit used up looks again when it is renewed, though nothing else happens.
func TestPoll_CLAIM14_LooksAgainAtTheReset(t *testing.T) {
	h := newHarness(t)
	reset := time.Now().Add(time.Hour)
	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.Rates[acme.InstallationID] = &fleet.RateState{Limit: 2, Remaining: 0, Reset: reset}
	})
	d := h.replica()
	h.record(job(fleet.JobEventQueued, 9, labelled("linux")))
	h.record(job(fleet.JobEventCompleted, 9, labelled("linux"))) // the label set is known: one wake-up a job
	ctx, hangUp := context.WithCancel(t.Context())
	waiting := h.poll(ctx, d, h.pod("linux"))
	h.waiting(1)
	h.queue(1)
	h.eventually("the pool waits for the reset", func() bool {
		return h.timers.count(func(d time.Duration) bool { return d > 50*time.Minute && d <= time.Hour }) > 0
	})
	require.Zero(t, h.forge.Mints())
	hangUp()
	await.Receive(t, waiting, "the poll is answered")
}

// CLAIM-8: a claim that was minted once is not taken back because a later mint was refused: its row, and so the
// protection of its pod, stays.
func TestPoll_CLAIM8_RefusedReMintKeepsTheRow(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	h.served(d, pod)
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Refuse = fleet.ErrRejected })
	answer, err := d.Poll(await.Context(t), pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyRetry, answer.Reply)
	require.Equal(t, fleet.ClaimMinted, h.claim(pod).State)
	require.Equal(t, fleet.JobMinted, h.jobState(1))
}

// CLAIM-12: a label set that two live pools serve is served by neither.
func TestRoute_CLAIM12_NeitherOfTwoPoolsServes(t *testing.T) {
	sets := []dispatch.LabelSet{{Key: "k", Labels: []string{"linux"}}}
	a, b := linuxPool("a", "linux"), linuxPool("b", "linux")
	r := dispatch.Route([]dispatch.Pool{a, b}, sets)
	require.Empty(t, r.Served)
	require.Len(t, r.Ambiguous["k"], 2)
	b.Terminating = true
	r = dispatch.Route([]dispatch.Pool{a, b}, sets)
	require.Equal(t, map[dispatch.PoolRef][]string{a.Ref(): {"k"}}, r.Served)
	require.Empty(t, r.Ambiguous)
}

// CLAIM-13: while GitHub does not answer, an adoption is neither made nor given up.
func TestAdoption_CLAIM13_NoAnswerIsAskedAgain(t *testing.T) {
	for name, prepare := range map[string]func(h *harness, runner string){
		"unreadable": func(h *harness, _ string) {
			h.forge.Set(func(g *dispatchtest.GitHub) { g.Unread = fleet.ErrUncertain })
		},
		"not busy": func(h *harness, runner string) {
			h.forge.Set(func(g *dispatchtest.GitHub) { g.Runners[runner].Busy = false })
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			var mu sync.Mutex
			now := time.Now().Add(time.Minute) // everything that is requested from here on is due
			registry := prometheus.NewRegistry()
			h.replica(func(o *dispatch.Options) {
				o.Metrics = registry
				o.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
			})
			pod := h.pod("linux")
			runner := h.ghost(pod)
			h.forge.Start(runner, 0)
			prepare(h, runner)
			h.record(job(fleet.JobEventStarted, 50, by(runner)))
			h.eventually("asked once", func() bool {
				h.timers.fire(10 * time.Second)
				return counted(t, registry, "bullpen_dispatch_adoptions_total")
			})
			require.Equal(t, fleet.ClaimNone, h.claim(pod).State)
			h.forge.Set(func(g *dispatchtest.GitHub) { g.Unread = nil })
			h.forge.Start(runner, 0)
			h.eventually("adopted", func() bool {
				mu.Lock()
				now = now.Add(20 * time.Second)
				mu.Unlock()
				h.timers.fire(10 * time.Second)
				return h.claim(pod).State == fleet.ClaimExecuting
			})
		})
	}
}

// CLAIM-13: a job that has ended in between revives no claim, and an adopted runner is charged to its lane.
func TestAdopt_CLAIM13_EndedJobRevivesNoClaim(t *testing.T) {
	h := newHarness(t)
	pod := h.pod("linux")
	runner := h.ghost(pod)
	pool, _ := h.cluster.Pool(pod.Pool)
	adoption := dispatch.Adoption{
		RunnerName: runner, RunnerID: 9, PodUID: pod.UID, Account: acme, JobID: 1, Scope: fleet.Scope{Owner: "acme"},
	}
	h.record(job(fleet.JobEventStarted, 1, by(runner)))
	h.record(job(fleet.JobEventCompleted, 1, by(runner)))
	adopted, err := h.store.Adopt(t.Context(), adoption, pod, pool, time.Now())
	require.NoError(t, err)
	require.False(t, adopted)
	require.Equal(t, fleet.ClaimNone, h.claim(pod).State)

	h.record(job(fleet.JobEventStarted, 2, by(runner)))
	adoption.JobID = 2
	adopted, err = h.store.Adopt(t.Context(), adoption, pod, pool, time.Now())
	require.NoError(t, err)
	require.True(t, adopted)
	require.Equal(t, int64(1), ledgertest.Int(t, h.url, `SELECT sum(running)::bigint FROM job_lanes`))
	h.record(job(fleet.JobEventCompleted, 2, by(runner)))
	require.Zero(t, ledgertest.Int(t, h.url, `SELECT sum(running)::bigint FROM job_lanes`))
}

// CLAIM-13, CLAIM-17: a list of GitHub's that was read before the runner's job ended, and is used after, revives no claim.
func TestAdopt_CLAIM13_CLAIM17_ALateReadingRevivesNoClaim(t *testing.T) {
	h := newHarness(t)
	h.queue(1)
	pod := h.pod("linux")
	pool, _ := h.cluster.Pool(pod.Pool)
	runner := h.served(h.replica(), pod).JIT.Name
	shown := roster.Sighting{Found: []roster.Found{{Registration: fleet.Registration{Name: runner, ID: 9, Online: true, Busy: true},
		Scope: fleet.Scope{Owner: "acme"}, Owner: fleet.Owner{ID: acme.ID, Login: acme.Login, InstallationID: acme.InstallationID}}}}
	seen, ok := dispatch.FoundAt(pod, pool, shown)
	require.True(t, ok)
	h.record(job(fleet.JobEventStarted, 1, by(runner)))
	h.record(job(fleet.JobEventCompleted, 1, by(runner)))
	require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)

	adopted, err := h.store.Adopt(t.Context(), seen.Adoption(), pod, pool, time.Now())
	require.NoError(t, err)
	require.False(t, adopted)
	state, err := h.store.Rebuild(t.Context(), h.turn(), seen, time.Now())
	require.NoError(t, err)
	require.Equal(t, fleet.ClaimSpent, state)
	require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
}

// turn begins a hold, and has the turn to rebuild in it.
func (h *harness) turn() epoch.Turn {
	h.t.Helper()
	row, err := h.store.Epoch(h.t.Context())
	require.NoError(h.t, err)
	require.NoError(h.t, h.store.BeginHold(h.t.Context(), row.Mark, epoch.Decision{Over: row.Mark, Reason: "a test"}, time.Minute))
	turn, mine, err := h.store.BeginRebuild(h.t.Context(), time.Minute, 0)
	require.NoError(h.t, err)
	require.True(h.t, mine)
	return turn
}

// EXCL-5, CLAIM-7, CLAIM-16: the table of what a poll gets, whole.
func TestDecide_EXCL5_CLAIM7_CLAIM16_WholeTable(t *testing.T) {
	now := time.Now()
	for _, state := range fleet.ClaimStates() {
		for _, deleting := range []bool{false, true} {
			for _, acknowledged := range []bool{false, true} {
				for _, leased := range []bool{false, true} {
					claim := dispatch.Claim{State: state, Acknowledged: acknowledged}
					if leased {
						claim.LeaseUntil = now.Add(time.Second)
					}
					want := dispatch.StepGone
					switch {
					case deleting:
					case state == fleet.ClaimNone:
						want = dispatch.StepMatch
					case (state == fleet.ClaimClaimed || state == fleet.ClaimMinted) && !acknowledged && leased:
						want = dispatch.StepAwait
					case (state == fleet.ClaimClaimed || state == fleet.ClaimMinted) && !acknowledged:
						want = dispatch.StepTakeOver
					}
					require.Equal(t, want, dispatch.Decide(dispatch.Pod{Deleting: deleting}, claim, 0, now),
						fmt.Sprintf("%q deleting=%v acknowledged=%v leased=%v", state, deleting, acknowledged, leased))
				}
			}
		}
	}
}

// EXCL-1: a pod whose row cannot be written, because a former pod's row of that name stands, is unknown and not granted.
func TestRetire_EXCL1_PodWithoutARowIsUnknown(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	former := h.pod("linux")
	_, err := d.Retire(t.Context(), []dispatch.Pod{former})
	require.NoError(t, err)
	successor := former
	successor.UID = uuid.NewString()
	answers, err := d.Retire(t.Context(), []dispatch.Pod{successor})
	require.NoError(t, err)
	require.Equal(t, runnerapi.Unknown, answers[0].Verdict)
}

// EXCL-6: with a readable scope, 404 and a 403 beside an absence in the list are proofs. A 403 beside the runner,
// a 5xx, and a name that cannot be looked up are not.
func TestPoll_EXCL6_WhatProvesARegistrationGone(t *testing.T) {
	cases := map[string]struct {
		answer error
		listed bool
		want   dispatch.Reply
	}{
		"404":                {fleet.ErrNotFound, true, dispatch.ReplyServe},
		"403, not listed":    {fleet.ErrForbidden, false, dispatch.ReplyServe},
		"403, still listed":  {fleet.ErrForbidden, true, dispatch.ReplyRetry},
		"5xx, scope is read": {fleet.ErrUncertain, true, dispatch.ReplyRetry},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			d := h.replica()
			h.queue(1)
			pod := h.pod("linux")
			first := h.served(d, pod)
			h.forge.Set(func(g *dispatchtest.GitHub) {
				g.RemoveErr = c.answer
				if !c.listed {
					delete(g.Runners, first.JIT.Name)
				}
			})
			got, err := d.Poll(await.Context(t), pod, 0)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Reply)
		})
	}
	t.Run("a mint without an answer, and a list that cannot be read", func(t *testing.T) {
		h := newHarness(t)
		h.forge.Set(func(g *dispatchtest.GitHub) { g.OnMint = func(string) error { return fleet.ErrUncertain } })
		h.queue(1)
		pod := h.pod("linux")
		_, err := h.replica().Poll(await.Context(t), pod, 0)
		require.NoError(t, err)
		h.forge.Set(func(g *dispatchtest.GitHub) { g.OnMint, g.Unread = nil, fleet.ErrUncertain })
		got, err := h.replica().Poll(await.Context(t), pod, 0)
		require.NoError(t, err)
		require.Equal(t, dispatch.ReplyRetry, got.Reply)
		require.Equal(t, 1, h.forge.Mints())
	})
}

// standingStill is a store whose next reading of registrations takes as long as the test wants.
type standingStill struct {
	dispatch.Store
	once             sync.Once
	reached, release chan struct{}
}

func (s *standingStill) Registrations(ctx context.Context, podUID string, before int64) ([]dispatch.Registration, error) {
	s.once.Do(func() {
		close(s.reached)
		select {
		case <-s.release:
		case <-ctx.Done():
		}
	})
	return s.Store.Registrations(ctx, podUID, before)
}
