package ledger

import (
	"context"
	"fmt"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// How far UnservedLanes looks: what a reading costs follows from these and from the number of lanes, not from the number of jobs.
const (
	unservedSets  = 100    // label sets
	unservedLanes = 20     // accounts of one label set
	unservedJobs  = 10_000 // jobs that are counted, shared by the lanes
	unservedLeast = 10     // jobs that are counted of each lane
)

// UnservedLanes lists the label sets beside those that have jobs queued, the oldest first, and counts the jobs. It reads each lane once and no
// lane's jobs beyond a bound, and does not wait out an outage. Each server reads it every 30 s, and at most every 10 s for its clients.
func (s *Store) UnservedLanes(ctx context.Context, served []string) (dispatch.UnservedLanes, error) {
	var out dispatch.UnservedLanes
	err := s.pool.inSnapshot(ctx, func(tx sqlcgen.DBTX) error {
		var err error
		out, err = readUnserved(ctx, sqlcgen.New(tx), served)
		return err
	})
	if err != nil {
		return dispatch.UnservedLanes{}, fmt.Errorf("reading label sets that no pool serves: %w", err)
	}
	return out, nil
}

// InspectUnserved is UnservedLanes of a database that the caller does not otherwise use.
func InspectUnserved(ctx context.Context, url string, served []string) (dispatch.UnservedLanes, error) {
	conn, err := connect(ctx, url)
	if err != nil {
		return dispatch.UnservedLanes{}, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	out, err := readUnserved(ctx, sqlcgen.New(conn), served)
	if err != nil {
		return dispatch.UnservedLanes{}, fmt.Errorf("reading label sets that no pool serves: %w", err)
	}
	return out, nil
}

func readUnserved(ctx context.Context, q *sqlcgen.Queries, served []string) (dispatch.UnservedLanes, error) {
	if served == nil {
		served = []string{} // <> ALL of NULL is never true
	}
	var out dispatch.UnservedLanes
	rows, err := q.UnservedLanes(ctx, served, unservedSets, unservedLanes)
	if err != nil || len(rows) == 0 {
		return out, err
	}
	out.More = rows[0].Sets > unservedSets
	var arg sqlcgen.LookIntoLanesParams
	counted, at := int64(max(unservedLeast, unservedJobs/len(rows))), make(map[lane]int, len(rows))
	for i, row := range rows {
		at[lane{row.LabelKey, row.AccountID}] = i
		out.Lanes = append(out.Lanes, dispatch.UnservedLane{LabelKey: row.LabelKey, AccountID: row.AccountID, More: row.Lanes > unservedLanes})
		arg.LabelKeys, arg.Accounts = append(arg.LabelKeys, row.LabelKey), append(arg.Accounts, row.AccountID)
		arg.Counts, arg.Ages, arg.Named = append(arg.Counts, counted), append(arg.Ages, 1), append(arg.Named, true)
		arg.Lasts = append(arg.Lasts, 0)
	}
	looked, err := q.LookIntoLanes(ctx, arg)
	for _, row := range looked {
		l := &out.Lanes[at[lane{row.LabelKey, row.AccountID}]]
		l.Jobs, l.More = row.Jobs, l.More || row.Jobs >= counted
		if len(row.Ids) > 0 {
			l.Oldest, l.Repository = dispatch.JobAge{ID: row.Ids[0], QueuedAt: row.QueuedAt[0]}, row.Repositories[0]
		}
	}
	return out, err
}
