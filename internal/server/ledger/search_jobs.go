package ledger

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// searched is how many jobs one page of a search reads at most. No index has parts of names, and none is worth its writes.
const searched = 5000

// SearchJobs returns a page of the jobs that match, newest first. next is the "before" of the next page; 0: this is the last. A page may have fewer jobs
// than were asked for, or none, and have a next one: each reads a bounded number of jobs.
func (s *Store) SearchJobs(ctx context.Context, q admin.JobQuery) (jobs []admin.StoredJob, next int64, err error) {
	if !storable(q.Repository) || !storable(q.Name) {
		return nil, 0, nil
	}
	if q.Before == 0 {
		q.Before = math.MaxInt64
	}
	accounts, err := s.accountsOf(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	err = s.pool.inSnapshot(ctx, func(tx sqlcgen.DBTX) error {
		queries := sqlcgen.New(tx)
		ids, rest, err := searchJobs(ctx, queries, q, accounts)
		if err != nil {
			return err
		}
		if next = rest; len(ids) == q.Most {
			next = ids[len(ids)-1]
		}
		if len(ids) == 0 {
			return nil
		}
		rows, err := queries.JobsInFull(ctx, ids)
		for _, row := range rows {
			jobs = append(jobs, storedJob(row))
		}
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("searching jobs: %w", err)
	}
	return jobs, next, nil
}

// searchJobs returns the matches among the newest jobs, and the lowest id that was read where older ones may be left.
func searchJobs(ctx context.Context, queries *sqlcgen.Queries, q admin.JobQuery, accounts []int64) (ids []int64, rest int64, err error) {
	repository, part := q.Repository, ""
	if !strings.Contains(q.Repository, "/") {
		repository, part = "", q.Repository
	}
	conclusions := storedConclusions(q.Conclusions)
	states, live := statesOf(q)
	most := int32(q.Most) //nolint:gosec // at most MaxPage
	switch {
	case len(accounts) > 0:
		found, err := queries.SearchJobsOfAccounts(ctx, sqlcgen.SearchJobsOfAccountsParams{
			Accounts: accounts, States: states, Conclusions: conclusions, Repository: repository, Part: part, Name: q.Name, Before: q.Before, Most: most, Scan: searched,
		})
		return found.Ids, found.Rest, err
	case live && len(conclusions) == 0:
		found, err := queries.SearchLiveJobs(ctx, sqlcgen.SearchLiveJobsParams{
			States: states, Repository: repository, Part: part, Name: q.Name, Before: q.Before, Most: most, Scan: searched,
		})
		return found.Ids, found.Rest, err
	default:
		found, err := queries.SearchJobs(ctx, sqlcgen.SearchJobsParams{
			States: states, Conclusions: conclusions, Repository: repository, Part: part, Name: q.Name, Before: q.Before, Most: most, Scan: searched,
		})
		return found.Ids, found.Rest, err
	}
}

// Conclusions counts the conclusions of the newest jobs that have completed since then, so many at most.
func (s *Store) Conclusions(ctx context.Context, since time.Time, most int) (map[string]int64, error) {
	rows, err := s.queries().RecentConclusions(ctx, since, int32(most)) //nolint:gosec // at most MaxCounted
	if err != nil {
		return nil, fmt.Errorf("counting conclusions: %w", err)
	}
	counts := map[string]int64{}
	for _, row := range rows {
		counts[shownConclusion(row.Conclusion)] += row.Jobs
	}
	return counts, nil
}

// accountDeleted is the stored conclusion of the jobs that an account had queued when it was deleted. The API shows them as stale.
const accountDeleted = "account_deleted"

func shownConclusion(stored string) string {
	if stored == accountDeleted {
		return adminapi.ConclusionStale
	}
	return stored
}

// storedConclusions are those to search for; not nil, which would be NULL.
func storedConclusions(shown []string) []string {
	stored := append([]string{}, shown...)
	if slices.Contains(shown, adminapi.ConclusionStale) {
		stored = append(stored, accountDeleted)
	}
	return stored
}
