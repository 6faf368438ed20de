package standin_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// fleet answers every queued webhook with a registration and a development runner in this process.
type fleet struct {
	w    *world
	seen map[int64]bool
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

func (f *fleet) run(ctx context.Context) {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for ctx.Err() == nil {
		for _, h := range f.w.hooks.got("workflow_job", "queued") {
			id := h.Job.GetWorkflowJob().GetID()
			if !f.seen[id] {
				f.seen[id] = true
				f.wg.Go(func() { f.launch(ctx, fmt.Sprintf("pod-%d", id), h.Job.GetWorkflowJob().Labels) })
			}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	f.wg.Wait() // bounded: each ends with ctx
}

// launch mints until an answer arrives, and runs one development runner. A mint whose answer was lost is found by its
// name and removed.
func (f *fleet) launch(ctx context.Context, name string, labels []string) {
	var config *github.JITRunnerConfig
	for try := 0; ctx.Err() == nil; try++ {
		unique := fmt.Sprintf("%s-%d", name, try)
		minted, _, err := f.w.org.Actions.GenerateOrgJITConfig(ctx, "acme", &github.GenerateJITConfigRequest{Name: unique, RunnerGroupID: 1, Labels: labels})
		if err == nil {
			config = minted
			break
		}
		found, _, err := f.w.org.Actions.ListOrganizationRunners(ctx, "acme", &github.ListRunnersOptions{Name: &unique})
		if err != nil {
			continue
		}
		for _, rn := range found.Runners {
			_, err = f.w.org.Actions.RemoveOrganizationRunner(ctx, "acme", rn.GetID())
			f.fail(ctx, err)
		}
	}
	if config == nil {
		return
	}
	r, err := devrunner.New(devrunner.Options{
		JIT: config.GetEncodedJITConfig(), WorkDir: f.w.t.TempDir(), FlushEvery: 20 * time.Millisecond,
		InterruptGrace: time.Second, TerminateGrace: time.Second,
	})
	if err == nil {
		err = r.Run(ctx)
	}
	f.fail(ctx, err)
}

func (f *fleet) fail(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

// startFleet runs a fleet until the test ends.
func startFleet(w *world) *fleet {
	ctx, cancel := context.WithCancel(w.ctx)
	f := &fleet{w: w, seen: map[int64]bool{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx)
	}()
	w.t.Cleanup(func() {
		cancel()
		await.Receive(w.t, done, "the fleet stops")
	})
	return f
}

func TestEndToEnd_RealRunnersRunARealWorkflow(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) { o.Now = time.Now })
	f := startFleet(w)
	runs, err := w.in.Admin.Submit(w.ctx, standin.Submission{FileName: "e2e.yaml", Repo: "acme/app", Event: "push", Content: `
name: e2e
on: [push]
jobs:
  build:
    runs-on: [self-hosted, linux]
    outputs:
      word: ${{ steps.w.outputs.word }}
    steps:
      - id: w
        run: echo "word=bullpen" >> "$GITHUB_OUTPUT"
  test:
    needs: build
    runs-on: [self-hosted, linux]
    strategy:
      fail-fast: false
      matrix:
        shard: [1, 2, 3]
    env:
      WORD: ${{ needs.build.outputs.word }}
    steps:
      - run: echo "$WORD on shard ${{ matrix.shard }}"
      - if: matrix.shard == 2
        run: exit 3
  report:
    needs: test
    if: failure()
    runs-on: [self-hosted, linux]
    steps:
      - run: echo "needed because ${{ needs.test.result }}"
  hang:
    runs-on: [self-hosted, linux]
    steps:
      - run: |
          echo waiting
          sleep 300
`})
	require.NoError(t, err)
	run := runs[0]
	require.Eventually(t, func() bool { return w.job(run, "hang").Status == "in_progress" }, time.Minute, look)
	require.Eventually(t, func() bool {
		for _, j := range w.jobs(run) {
			if j.Name == "report" {
				return j.Status == "completed"
			}
		}
		return false
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, w.in.Admin.CancelJob(w.ctx, w.job(run, "hang").ID))
	wait, stop := context.WithTimeout(w.ctx, time.Minute)
	defer stop()
	view, err := w.in.Admin.WaitRun(wait, run.ID)
	require.NoError(t, err)
	require.Equal(t, "failure", view.Conclusion)
	want := map[string]string{
		"build": "success", "test (1)": "success", "test (2)": "failure", "test (3)": "success", "report": "success", "hang": "cancelled",
	}
	jobs := w.jobs(run)
	require.Len(t, jobs, len(want))
	for _, j := range jobs {
		require.Equal(t, want[j.Name], j.Conclusion, j.Name)
		require.Equal(t, 1, j.Acquisitions, j.Name)
		require.NotEmpty(t, j.Steps, j.Name)
	}
	text, err := w.in.Admin.JobLog(w.ctx, w.job(run, "test (2)").ID)
	require.NoError(t, err)
	require.Contains(t, text, "bullpen on shard 2")
	text, err = w.in.Admin.JobLog(w.ctx, w.job(run, "report").ID)
	require.NoError(t, err)
	require.Contains(t, text, "needed because failure")
	state := w.in.State()
	require.Zero(t, state.Lost)
	require.Empty(t, state.AcquiredTwice)
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Empty(t, f.errs)
}

func TestEndToEnd_EveryJobRunsOnceThroughFaults(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) {
		o.Now = time.Now
		o.ShuffleAssignment, o.ShuffleWebhooks = true, true
	})
	for _, f := range []standin.Fault{
		{Kind: "hook-double", Percent: 30},
		{Kind: "hook-delay", Percent: 30, Delay: standin.Duration(50 * time.Millisecond)},
		{Kind: "rest-cut", Route: "generate-jitconfig", Percent: 20},
		{Kind: "rest-status", Route: "generate-jitconfig", Percent: 10, Status: 503},
		// A runner asks five times, and a job that it has acquired without hearing of it is lost for ten minutes, at GitHub too.
		{Kind: "rest-cut", Route: "acquirejob", Percent: 20, Times: 4},
		{Kind: "token-expired", Route: "/message", Percent: 10},
	} {
		w.fault(f)
	}
	fleet := startFleet(w)
	run := w.submit(`
name: many
on: push
jobs:
  test:
    runs-on: [self-hosted, linux]
    strategy:
      fail-fast: false
      matrix:
        n: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
    steps:
      - run: test ${{ matrix.n }} -ne 7
`)
	wait, stop := context.WithTimeout(w.ctx, 2*time.Minute)
	defer stop()
	view, err := w.in.Admin.WaitRun(wait, run.ID)
	require.NoError(t, err)
	require.Equal(t, "failure", view.Conclusion)
	for _, j := range w.jobs(run) {
		require.Equal(t, 1, j.Acquisitions, j.Name)
		require.Equal(t, map[bool]string{true: "failure", false: "success"}[j.Name == "test (7)"], j.Conclusion, j.Name)
	}
	state := w.in.State()
	require.Zero(t, state.Lost)
	require.Empty(t, state.AcquiredTwice)
	fleet.mu.Lock()
	defer fleet.mu.Unlock()
	require.Empty(t, fleet.errs)
}
