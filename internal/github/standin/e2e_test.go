package standin_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/devrunner"
	"github.com/bullpen-ci/bullpen/internal/github/standin"
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
	f.wg.Wait()
}

func (f *fleet) launch(ctx context.Context, name string, labels []string) {
	config, _, err := f.w.org.Actions.GenerateOrgJITConfig(ctx, "acme", &github.GenerateJITConfigRequest{Name: name, RunnerGroupID: 1, Labels: labels})
	if err == nil {
		var r *devrunner.Runner
		r, err = devrunner.New(devrunner.Options{
			JIT: config.GetEncodedJITConfig(), WorkDir: f.w.t.TempDir(), FlushEvery: 20 * time.Millisecond,
			InterruptGrace: time.Second, TerminateGrace: time.Second,
		})
		if err == nil {
			err = r.Run(ctx)
		}
	}
	if err != nil && ctx.Err() == nil {
		f.mu.Lock()
		f.errs = append(f.errs, fmt.Errorf("%s: %w", name, err))
		f.mu.Unlock()
	}
}

func TestEndToEnd_RealRunnersRunARealWorkflow(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) { o.Now = time.Now })
	ctx, cancel := context.WithCancel(w.ctx)
	f := &fleet{w: w, seen: map[int64]bool{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
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
