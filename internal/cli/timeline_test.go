package cli_test

import (
	"bytes"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// A job's timeline is whole while it runs, when it has ended, and when its pod and the pod's claim are long gone.
func TestJob_ItsTimelineOutlivesItsPod(t *testing.T) {
	d := newDesk(t)
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	event := func(kind fleet.JobEvent, now time.Time) dispatch.Recorded {
		t.Helper()
		ev := dispatch.JobEvent{
			Kind: kind, Account: dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}, JobID: 7, Repository: "acme/app", RunID: 9, RunAttempt: 1,
			Name: "build", Workflow: "ci", Labels: []string{"linux-4"}, QueuedAt: start,
		}
		if kind == fleet.JobEventStarted || kind == fleet.JobEventCompleted {
			ev.StartedAt, ev.RunnerName, ev.RunnerID = at(66), "runner-1", 4711
		}
		if kind == fleet.JobEventCompleted {
			ev.CompletedAt, ev.Conclusion = at(96), "success"
		}
		rec, err := d.store.RecordJob(t.Context(), dispatch.Delivery{Event: "workflow_job", At: now}, ev)
		require.NoError(t, err)
		return rec
	}
	read := func() adminapi.Job {
		t.Helper()
		job, err := d.Job(t.Context(), 7)
		require.NoError(t, err)
		return job
	}
	event(fleet.JobEventWaiting, at(0.5))
	require.Equal(t, []adminapi.TimelinePhase{{Name: "webhook", Seconds: 0.5, WholeSeconds: true}}, read().Timeline.Split)
	event(fleet.JobEventQueued, at(60))
	result, err := d.store.ClaimBatch(t.Context(), dispatch.Batch{
		Pool: d.fleet.pools[0], LabelKeys: []string{dispatch.LabelKey([]string{"linux-4"})},
		Polls:   []dispatch.Poll{{Namespace: "runners", PodName: "linux-4-a", PodUID: podUIDs["linux-4-a"]}},
		Reserve: func(_ dispatch.Account, want int) int { return want }, Return: func(int64, int) {}, Lease: time.Minute, Now: at(60.25), Excluded: []int64{},
	})
	require.NoError(t, err)
	require.Len(t, result.Claims, 1)
	claim, err := d.store.Claim(t.Context(), podUIDs["linux-4-a"])
	require.NoError(t, err)
	ok, err := d.store.Intend(t.Context(), claim.PodUID, claim.Generation, "runner-1", fleet.Scope{Owner: "acme"}, at(60.25))
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = d.store.RecordMint(t.Context(), claim.PodUID, claim.Generation, 4711, at(61))
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = d.store.Acknowledge(t.Context(), claim.PodUID, claim.Generation, at(61.125))
	require.NoError(t, err)
	require.True(t, ok)
	started := event(fleet.JobEventStarted, at(66.5)).Started
	require.Equal(t, &dispatch.Started{Pool: "linux-4", Times: fleet.JobTimes{
		Queued: start, Received: at(0.5), Approved: at(60), Claimed: at(60.25), Minted: at(61), Acknowledged: at(61.125), Executing: at(66),
	}}, inUTC(started))
	want := []adminapi.TimelinePhase{
		{Name: "webhook", Seconds: 0.5, WholeSeconds: true}, {Name: "approval", Seconds: 59.5}, {Name: "dispatch", Seconds: 0.25}, {Name: "registration", Seconds: 0.75},
		{Name: "handover", Seconds: 0.125}, {Name: "start", Seconds: 4.875, WholeSeconds: true},
	}
	require.Equal(t, want, read().Timeline.Split)
	require.Nil(t, event(fleet.JobEventStarted, at(67)).Started, "it is counted once")

	event(fleet.JobEventCompleted, at(96.5))
	want = append(want, adminapi.TimelinePhase{Name: "run", Seconds: 30, WholeSeconds: true})
	require.Equal(t, want, read().Timeline.Split)
	forgotten, err := d.store.ForgetPod(t.Context(), claim.PodUID)
	require.NoError(t, err)
	require.True(t, forgotten)
	job := read()
	require.Equal(t, want, job.Timeline.Split)
	require.Equal(t, "linux-4-a", job.Pod)
	require.Equal(t, "linux-4", job.Pool)

	var shown bytes.Buffer
	require.NoError(t, cli.PrintJob(&shown, &cli.Output{}, job, at(100), ""))
	require.Regexp(t, `(?m)^PHASE +TIME +DURATION +DETAIL$`, shown.String())
	require.Regexp(t, `(?m)^assigned +2026-11-01 \d\d:\d\d:00\.250 +250ms +`+regexp.QuoteMeta(fleet.PhaseDispatch.Words())+`$`, shown.String())
	require.Regexp(t, `(?m)^registered +.* 750ms +`, shown.String())
	require.Regexp(t, `(?m)^running +2026-11-01 \d\d:\d\d:06 +5s +`+regexp.QuoteMeta(fleet.PhaseStart.Words())+`$`, shown.String(), "GitHub gives whole seconds")
	require.Regexp(t, `(?m)^completed +2026-11-01 \d\d:\d\d:36 +30s +running$`, shown.String())
	t.Log(shown.String())
}

// A queued job has a row for the time it has waited so far, and an exit code of a signal has the signal's name.
func TestPrintJob_QueuedAndKilled(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	show := func(job adminapi.Job) string {
		var out bytes.Buffer
		require.NoError(t, cli.PrintJob(&out, &cli.Output{}, job, start.Add(90*time.Second), " --state-dir /box"))
		return out.String()
	}
	steps := []adminapi.TimelineStep{{Name: "queued", At: start, WholeSeconds: true}}
	queued := adminapi.Job{
		ID: 7, State: adminapi.JobQueued, QueuedAt: start,
		Timeline: &adminapi.Timeline{Steps: steps, Open: &adminapi.TimelineOpen{Name: string(fleet.PhaseDispatch), Since: start}},
	}
	detail := regexp.QuoteMeta(fleet.PhaseDispatch.Words())
	require.Regexp(t, `(?m)^queued +now +1m30s +`+detail+`, so far$`, show(queued))
	queued.State, queued.BlockedBy = adminapi.JobBlocked, "repository_limit"
	require.Regexp(t, `(?m)^blocked +now +1m30s +`+detail+`, so far$`, show(queued))

	code := int32(137)
	done := adminapi.Job{
		ID: 7, State: "completed", Conclusion: "failure", QueuedAt: start, StartedAt: &start, CompletedAt: &start, Pod: "linux-4-a", ExitCode: &code,
		Timeline: &adminapi.Timeline{Steps: steps},
	}
	require.Contains(t, show(done), "The runner exited with code 137 (SIGKILL). See its last log lines: `bullpen runners logs linux-4-a --state-dir /box`\n")
	require.NotContains(t, show(done), "so far")
	code = 3
	require.Contains(t, show(done), "exited with code 3. See")
	code = 0
	require.NotContains(t, show(done), "exited")

	require.Contains(t, show(done), "\nLog      bullpen job 7 --log --state-dir /box\n", "the stand-in for GitHub has no pages")
	require.NotContains(t, show(queued), "--log", "there is no log yet")
	done.URL = "https://github.com/acme/app/actions/runs/9/job/7"
	require.Contains(t, show(done), "\nGitHub   "+done.URL+"\n")
	require.NotContains(t, show(done), "--log")
}

func inUTC(s *dispatch.Started) *dispatch.Started {
	if s == nil {
		return nil
	}
	for _, at := range []*time.Time{
		&s.Times.Queued, &s.Times.Received, &s.Times.Approved, &s.Times.Claimed, &s.Times.Minted, &s.Times.Acknowledged, &s.Times.Executing,
	} {
		*at = at.UTC()
	}
	return s
}
