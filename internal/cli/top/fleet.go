package top

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// Source is where the fleet is read from: *cli.Client.
type Source interface {
	Pools(ctx context.Context) (adminapi.PoolList, error)
	Accounts(ctx context.Context, deleted bool) ([]adminapi.Account, error)
	Jobs(ctx context.Context, filter cli.JobFilter) ([]adminapi.Job, error)
	Why(ctx context.Context, job int64) (adminapi.Why, error)
}

// Fleet is what was read at once.
type Fleet struct {
	Pools    adminapi.PoolList
	Accounts []adminapi.Account
	Jobs     []adminapi.Job   // queued ones, the longest queued first, then running ones
	Cut      bool             // more jobs are queued than were read, older ones among them
	Why      map[int64]string // the first code for the longest queued
	At       time.Time
}

// Limits of one reading, which is repeated every few seconds.
const (
	mostQueued  = adminapi.MaxPage
	mostRunning = 200
	mostWhys    = 5
)

// read reads everything that is shown.
func read(ctx context.Context, source Source, now func() time.Time) (Fleet, error) {
	var f Fleet
	var err error
	if f.Pools, err = source.Pools(ctx); err != nil {
		return Fleet{}, err
	}
	if f.Accounts, err = source.Accounts(ctx, false); err != nil {
		return Fleet{}, err
	}
	queued, err := source.Jobs(ctx, cli.JobFilter{States: []string{adminapi.JobPendingApproval, adminapi.JobQueued, adminapi.JobBlocked, adminapi.JobNoPool, adminapi.JobElsewhere}, Most: mostQueued})
	if err != nil {
		return Fleet{}, err
	}
	running, err := source.Jobs(ctx, cli.JobFilter{States: []string{adminapi.JobAssigned, adminapi.JobRunning}, Most: mostRunning})
	if err != nil {
		return Fleet{}, err
	}
	slices.SortStableFunc(queued, func(a, b adminapi.Job) int {
		return cmp.Or(a.QueuedAt.Compare(b.QueuedAt), cmp.Compare(a.ID, b.ID))
	})
	f.Cut, f.Jobs, f.Why = len(queued) >= mostQueued, append(queued, running...), map[int64]string{}
	for _, job := range queued[:min(mostWhys, len(queued))] {
		why, err := source.Why(ctx, job.ID)
		if err == nil && len(why.Reasons) > 0 { // a list without reasons is better than none
			f.Why[job.ID] = why.Reasons[0].Code
		}
	}
	f.explainUnserved()
	f.At = now()
	return f, nil
}
