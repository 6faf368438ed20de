package ledger

import (
	"context"
	"fmt"
	"strconv"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// usagePage is how many rows of usage are read at once: more than one account can have in the months that may be asked for, as pools go.
const usagePage = 10_000

// Usage returns what accounts have used by month and pool. Whole accounts make a page.
func (s *Store) Usage(ctx context.Context, q admin.UsageQuery) ([]adminapi.MonthUsage, int64, error) {
	return s.usage(ctx, q, usagePage)
}

func (s *Store) usage(ctx context.Context, q admin.UsageQuery, most int) ([]adminapi.MonthUsage, int64, error) {
	arg := sqlcgen.UsageParams{Since: q.Since, Before: q.Before, Now: q.Now, After: q.After, Most: int32(most) + 1} //nolint:gosec // a small bound
	for month := q.Since; month.Before(q.Before); month = month.AddDate(0, 1, 0) {
		arg.Firsts, arg.Pasts = append(arg.Firsts, month), append(arg.Pasts, month.AddDate(0, 1, 0))
	}
	if q.Account != "" {
		var err error
		if arg.AccountID, err = resolveAccount(ctx, s.queries(), q.Account); err != nil {
			return nil, 0, err
		}
	}
	rows, err := s.queries().Usage(ctx, arg)
	if err != nil {
		return nil, 0, fmt.Errorf("summing up usage: %w", err)
	}
	var next int64
	if len(rows) > most {
		// The last account may not be whole: it begins the next page, unless it is the only one.
		cut := len(rows) - 1
		for cut > 0 && rows[cut-1].AccountID == rows[len(rows)-1].AccountID {
			cut--
		}
		if cut == 0 {
			return nil, 0, &admin.InvalidError{Sentence: "one account has used too many pools in these months: request fewer months"}
		}
		rows = rows[:cut]
		next = rows[cut-1].AccountID
	}
	usage := make([]adminapi.MonthUsage, len(rows))
	for i, row := range rows {
		usage[i] = adminapi.MonthUsage{
			Account: row.Login, AccountID: row.AccountID, Month: row.Month.UTC().Format(adminapi.MonthFormat), Namespace: row.Namespace, Pool: row.Pool,
			Platform: row.Platform, Sessions: row.Sessions, Jobs: row.Jobs, RunnerSeconds: row.Seconds, JobSeconds: row.JobSeconds,
			CPUSeconds: row.CpuSeconds, MemoryGiBSeconds: row.MemoryMbSeconds / 1024,
		}
		if row.Login == "" {
			usage[i].Account = "@" + strconv.FormatInt(row.AccountID, 10)
		}
	}
	return usage, next, nil
}
