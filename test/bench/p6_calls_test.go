package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const p6Jobs = 200

const p6Workflow = `
name: calls
on: workflow_dispatch
jobs:
  build:
    runs-on: linux-4cpu
    strategy: {matrix: {n: [%s]}}
    steps: [{run: "true"}]
`

// BenchmarkP6 counts GitHub's REST calls per job over the whole path: the stand-in hands each job to any idle runner,
// not to the one minted for it, and development runners speak the runner protocol to the end. The runner protocol's own
// calls are not REST calls of the App and count towards no limit.
func BenchmarkP6(b *testing.B) {
	for b.Loop() {
		local, forge := startGitHub(b, "")
		r := newRig(b, forge)
		require.NoError(b, local.SetWebhook(r.public.URL+"/webhooks/github", hookSecret))
		require.NoError(b, local.Admin.Announce(b.Context(), 42))
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() { r.slot(ctx, b) })
		}
		matrix := ""
		for i := range p6Jobs {
			matrix += fmt.Sprintf("%d,", i)
		}
		runs, err := local.Admin.Submit(b.Context(), standin.Submission{
			FileName: "calls.yaml", Content: fmt.Sprintf(p6Workflow, matrix[:len(matrix)-1]), Repo: "acme/app",
		})
		require.NoError(b, err)
		wait, stop := context.WithTimeout(b.Context(), 10*time.Minute)
		run, err := local.Admin.WaitRun(wait, runs[0].ID)
		stop()
		cancel()
		await.Return(b, wg.Wait, "the runners end")
		require.NoError(b, err)
		require.Equal(b, "success", run.Conclusion)
		stats := local.Stats()
		perJob := float64(stats.Calls) / p6Jobs
		b.ReportMetric(perJob, "calls/job")
		report(row{
			id: "P6", what: "GitHub REST calls for 200 jobs, each on another job's runner",
			measured: fmt.Sprintf("%d calls, %d of them registrations", stats.Calls, stats.Minted), limit: "count",
			result: fmt.Sprintf("%.3f", perJob), value: perJob, samples: p6Jobs, budget: "≤ 1.05", kept: perJob <= 1.05,
		})
	}
}

// slot is a place in the pool: one pod after another polls, runs its job and is replaced.
func (r *rig) slot(ctx context.Context, b *testing.B) {
	for ctx.Err() == nil {
		out := make(chan jit, 1)
		r.agent(ctx, r.newPod(), out)
		select {
		case got := <-out:
			if won, err := r.dispatcher.Acknowledge(ctx, got.pod, got.Generation); won {
				r.dispatcher.Label(ctx, got.pod)
			} else if err != nil && ctx.Err() == nil {
				b.Errorf("acknowledging: %v", err)
			}
			runner, err := devrunner.New(devrunner.Options{JIT: got.JITConfig, WorkDir: b.TempDir()})
			if err != nil {
				b.Errorf("starting a runner: %v", err)
				return
			}
			if err := runner.Run(ctx); err != nil && ctx.Err() == nil {
				b.Errorf("running a job: %v", err)
			}
		default:
		}
	}
}
