package soak

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

const workflow = `
name: soak
on: workflow_dispatch
jobs:
  soak:
    runs-on: %s
    strategy: {fail-fast: false, matrix: {n: [%s]}}
    steps: [{run: "%ssleep %g"}]
`

// daemon is what a real job leaves running, out of reach of a signal to its process group, as jobs of users do. The end of
// the job's container ends it.
const daemon = "setsid sleep 3600 >/dev/null 2>&1 & "

func (s *System) submit(b schedule.Batch) error {
	matrix := make([]string, b.Jobs)
	for i := range matrix {
		matrix[i] = fmt.Sprint(i)
	}
	pool := b.Pool
	if pool == schedule.PoolReal && s.opts.RealRunners == 0 {
		pool = schedule.PoolBulk
	}
	before := ""
	if pool == schedule.PoolReal {
		before = daemon
	}
	_, err := s.github.server.Submit(standin.Submission{
		FileName: "soak.yaml", Content: fmt.Sprintf(workflow, label(pool), strings.Join(matrix, ","), before, time.Duration(b.Each).Seconds()),
		Repo: accountName(b.Account) + "/app",
	})
	if err != nil {
		return fmt.Errorf("submitting jobs: %w", err)
	}
	return nil
}

// saturate keeps a number of jobs open, rotating through the accounts, until a moment.
func (s *System) saturate(ctx context.Context, keep schedule.Saturation, until time.Time) error {
	for n := 0; time.Now().Before(until); {
		for missing := keep.Open - s.open(); missing > 0; missing-- {
			n++
			if err := s.submit(schedule.Batch{Account: 1 + n%schedule.Accounts, Pool: schedule.PoolBulk, Jobs: 1, Each: keep.Each}); err != nil {
				return err
			}
		}
		if !pause(ctx, 100*time.Millisecond) {
			return nil
		}
	}
	return nil
}

// open is how many jobs are not over.
func (s *System) open() int {
	jobs := s.github.server.State().Jobs
	return jobs["queued"] + jobs["in_progress"] + jobs["waiting"]
}
