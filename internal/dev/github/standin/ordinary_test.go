package standin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
)

// ordinaryWorkflows are ten files after common practice: databases and caches as services, images of languages, browsers, container actions.
const ordinaryWorkflows = "workflow/testdata/ordinary/*.yml"

// They run unchanged: each job gets a runner with its labels, and a hook that plans its containers as the product does. The commands run on this machine.
func TestOrdinaryWorkflows_RunUnchanged(t *testing.T) {
	files, err := filepath.Glob(ordinaryWorkflows)
	require.NoError(t, err)
	require.Len(t, files, 10)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(o *standin.Options) {
				o.Secrets = map[string]string{"DB_PASSWORD": "hunter22", "REGISTRY_TOKEN": "hunter23"}
			})
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			runs, err := w.in.Admin.Submit(w.ctx, standin.Submission{FileName: filepath.Base(file), Repo: "acme/app", Content: string(content)})
			require.NoError(t, err)
			require.Empty(t, runs[0].MissingSecrets)
			hook, ran := fakeHookFile(t), 0
			for {
				job, ok := queuedJob(w, runs[0])
				if !ok {
					break
				}
				ran++
				_, config := w.mintConfig(fmt.Sprintf("r%d", ran), job.Labels...)
				r, err := devrunner.New(devrunner.Options{JIT: config, WorkDir: t.TempDir(), Environ: []string{
					"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "ACTIONS_RUNNER_CONTAINER_HOOKS=" + hook,
				}})
				require.NoError(t, err)
				require.NoError(t, r.Run(w.ctx))
			}
			require.Positive(t, ran)
			for _, job := range w.jobs(runs[0]) {
				log, err := w.in.Admin.JobLog(w.ctx, job.ID)
				require.NoError(t, err)
				require.Equal(t, "success", job.Conclusion, log)
				require.NotContains(t, log, "hunter2")
			}
		})
	}
}

func queuedJob(w *world, run standin.RunView) (standin.JobView, bool) {
	for _, job := range w.jobs(run) {
		if job.Status == "queued" {
			return job, true
		}
	}
	return standin.JobView{}, false
}
