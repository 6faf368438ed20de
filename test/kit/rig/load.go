package rig

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const workflow = `
name: load
on: workflow_dispatch
jobs:
  build:
    runs-on: %s
    strategy: {matrix: {n: [%s]}}
    steps: [{run: "sleep %g"}]
`

// Submit starts a run of that many jobs for an account (from 1), each of the given duration.
func (f *Fleet) Submit(ctx context.Context, label string, account, jobs int, each time.Duration) error {
	matrix := make([]string, jobs)
	for i := range matrix {
		matrix[i] = fmt.Sprint(i)
	}
	_, err := f.GitHub.Admin.Submit(ctx, standin.Submission{
		FileName: "load.yaml", Content: fmt.Sprintf(workflow, label, strings.Join(matrix, ","), each.Seconds()), Repo: fmt.Sprintf("org-%d/app", account),
	})
	return err
}

// Load submits jobs until it is stopped.
type Load struct {
	tb   testing.TB
	stop context.CancelFunc
	done sync.WaitGroup
}

// StartLoad keeps that many jobs open, rotating through the accounts and lengths. As soon as some have completed others are submitted, as
// fast as the machine allows.
func (f *Fleet) StartLoad(label string, open int, lengths ...time.Duration) *Load {
	ctx, cancel := context.WithCancel(f.ctx)
	l := &Load{tb: f.tb, stop: cancel}
	l.done.Go(func() {
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			state, err := f.GitHub.Admin.State(ctx)
			if missing := open - state.Jobs["queued"] - state.Jobs["in_progress"]; err == nil && missing > 0 {
				err = f.Submit(ctx, label, i%max(f.options.Accounts, 1)+1, missing, lengths[i%len(lengths)])
			}
			if err != nil && ctx.Err() == nil {
				f.tb.Errorf("submitting jobs: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	return l
}

// Stop submits nothing more.
func (l *Load) Stop() {
	l.stop()
	await.Return(l.tb, l.done.Wait, "the submissions end")
}

// State is what the stand-in knows of jobs.
func (f *Fleet) State() standin.StateView {
	f.tb.Helper()
	state, err := f.GitHub.Admin.State(f.ctx)
	require.NoError(f.tb, err)
	return state
}
