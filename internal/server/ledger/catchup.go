package ledger

import (
	"context"
	"encoding/json"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

var _ catchup.Ledger = (*Store)(nil)

// DeliveryPosition reads how far the list of deliveries was read.
func (s *Store) DeliveryPosition(ctx context.Context) (catchup.Position, error) {
	row, err := s.queries().DeliveryPosition(ctx)
	return catchup.Position{
		Version: row.Version, ReadUntil: deref(row.ReadUntil), Cursor: row.Cursor, Top: deref(row.Top), Floor: deref(row.Floor),
		ETag: row.Etag, EverythingSince: deref(row.EverythingSince),
	}, err
}

// SaveDeliveryPosition is a compare-and-set on the version that was read.
func (s *Store) SaveDeliveryPosition(ctx context.Context, p catchup.Position) (bool, error) {
	n, err := s.queries().SaveDeliveryPosition(ctx, sqlcgen.SaveDeliveryPositionParams{
		ReadUntil: nonZero(p.ReadUntil), Cursor: p.Cursor, Top: nonZero(p.Top), Floor: nonZero(p.Floor), Etag: p.ETag,
		EverythingSince: nonZero(p.EverythingSince), Version: p.Version,
	})
	return n == 1, err
}

// ReadEverythingSince has the list read again from there.
func (s *Store) ReadEverythingSince(ctx context.Context, since time.Time) error {
	return s.queries().ReadEverythingSince(ctx, since)
}

// NoteMissing notes those deliveries that were never recorded.
func (s *Store) NoteMissing(ctx context.Context, list []github.Delivery, now time.Time) (int64, error) {
	if len(list) == 0 {
		return 0, nil
	}
	arg := sqlcgen.NoteMissingParams{Now: now}
	for _, d := range list {
		arg.Guids = append(arg.Guids, d.GUID)
		arg.DeliveryIds = append(arg.DeliveryIds, d.ID)
		arg.Events = append(arg.Events, d.Event)
		arg.Delivered = append(arg.Delivered, d.DeliveredAt)
	}
	return s.queries().NoteMissing(ctx, arg)
}

// SettleAsks settles deliveries. A redelivery that has succeeded is remembered even if it was not requested: the attempt
// that failed before comes later in the list.
func (s *Store) SettleAsks(ctx context.Context, list []github.Delivery, now time.Time) error {
	if len(list) == 0 {
		return nil
	}
	arg := sqlcgen.SettleRedeliveredParams{Now: now}
	var others []string
	for _, d := range list {
		if !d.Redelivery {
			others = append(others, d.GUID)
			continue
		}
		arg.Guids = append(arg.Guids, d.GUID)
		arg.DeliveryIds = append(arg.DeliveryIds, d.ID)
		arg.Events = append(arg.Events, d.Event)
		arg.Delivered = append(arg.Delivered, d.DeliveredAt)
	}
	if len(others) > 0 {
		if err := s.queries().SettleAsks(ctx, &now, others); err != nil {
			return err
		}
	}
	if len(arg.Guids) == 0 {
		return nil
	}
	return s.queries().SettleRedelivered(ctx, arg)
}

// SettleRecorded settles deliveries that have been recorded since.
func (s *Store) SettleRecorded(ctx context.Context, now time.Time) error {
	_, err := s.queries().SettleRecorded(ctx, &now)
	return err
}

// DueAsks lists deliveries to ask for now.
func (s *Store) DueAsks(ctx context.Context, now time.Time, most int) ([]catchup.Ask, error) {
	rows, err := s.queries().DueAsks(ctx, now, int32(most)) //nolint:gosec // a small bound
	if err != nil {
		return nil, err
	}
	asks := make([]catchup.Ask, len(rows))
	for i, row := range rows {
		asks[i] = catchup.Ask{
			GUID: row.Guid, DeliveryID: row.DeliveryID, Event: row.Event, DeliveredAt: row.DeliveredAt, Attempts: row.Attempts,
		}
	}
	return asks, nil
}

// Asked notes that a delivery was asked for, and when to do it again.
func (s *Store) Asked(ctx context.Context, guid string, next time.Time) error {
	return s.queries().Asked(ctx, next, guid)
}

// DropOldAsks forgets old deliveries, and counts those that were never settled.
func (s *Store) DropOldAsks(ctx context.Context, before time.Time) (int64, error) {
	return s.queries().DropOldAsks(ctx, before)
}

// AccountsAfter lists the ids of accounts behind that one, in order.
func (s *Store) AccountsAfter(ctx context.Context, after int64, most int) ([]int64, error) {
	return s.queries().AccountsAfter(ctx, after, int32(most)) //nolint:gosec // a small bound
}

// RepositoriesToSweep lists so many repositories of each account, those swept longest ago first.
func (s *Store) RepositoriesToSweep(
	ctx context.Context, swept, seen time.Time, accounts []int64, most int,
) ([]catchup.Repository, error) {
	rows, err := s.queries().RepositoriesToSweep(ctx, sqlcgen.RepositoriesToSweepParams{
		SweptBefore: swept, SeenSince: seen, Accounts: notNil(accounts), Most: int32(most), //nolint:gosec // a small bound
	})
	if err != nil {
		return nil, err
	}
	list := make([]catchup.Repository, len(rows))
	for i, row := range rows {
		list[i] = catchup.Repository{
			Name: row.Name, Resume: catchup.Resume{Status: row.ResumeStatus, Run: row.ResumeRun},
			Account: dispatch.Account{ID: row.AccountID, Login: row.Login, User: row.Kind == "User", InstallationID: row.InstallationID},
		}
	}
	return list, nil
}

func notNil(ids []int64) []int64 {
	if ids == nil {
		return []int64{}
	}
	return ids
}

// Swept notes that a repository was swept to its end.
func (s *Store) Swept(ctx context.Context, repository string, at time.Time) error {
	return s.queries().Swept(ctx, at, repository)
}

// SweptPartly notes where its sweep is to continue.
func (s *Store) SweptPartly(ctx context.Context, repository string, resume catchup.Resume) error {
	return s.queries().SweptPartly(ctx, resume.Status, resume.Run, repository)
}

// JobStates are the states of those jobs that are known or buried.
func (s *Store) JobStates(ctx context.Context, ids []int64) (map[int64]fleet.JobState, error) {
	rows, err := s.queries().JobStates(ctx, notNil(ids))
	if err != nil {
		return nil, err
	}
	states := make(map[int64]fleet.JobState, len(rows))
	for _, row := range rows {
		states[row.ID] = fleet.JobState(row.State)
	}
	return states, nil
}

// JobsToAskAbout lists so many jobs of each account that wait, those asked about longest ago first.
func (s *Store) JobsToAskAbout(ctx context.Context, before time.Time, accounts []int64, most int) ([]catchup.WaitingJob, error) {
	rows, err := s.queries().JobsToAskAbout(ctx, notNil(accounts), &before, int32(most)) //nolint:gosec // a small bound
	if err != nil {
		return nil, err
	}
	list := make([]catchup.WaitingJob, len(rows))
	for i, row := range rows {
		ev := dispatch.JobEvent{
			Account: dispatch.Account{ID: row.AccountID, Login: row.Login, User: row.Kind == "User", InstallationID: row.InstallationID},
			JobID:   row.ID, Repository: row.Repository, RepositoryID: row.RepositoryID, RunID: row.RunID, RunAttempt: row.RunAttempt,
			Name: row.Name, Workflow: row.Workflow, HeadBranch: row.HeadBranch, HeadSHA: row.HeadSha, QueuedAt: row.QueuedAt,
		}
		if err := json.Unmarshal([]byte(row.LabelKey), &ev.Labels); err != nil {
			return nil, err
		}
		list[i] = catchup.WaitingJob{State: fleet.JobState(row.State), Event: ev, Suspended: row.Suspended}
	}
	return list, nil
}

// AskedAbout notes that jobs were asked about, if they still wait.
func (s *Store) AskedAbout(ctx context.Context, ids []int64, now time.Time) error {
	return s.queries().AskedAbout(ctx, &now, ids)
}

// ConfirmWaiting notes GitHub's word that a job rightly waits.
func (s *Store) ConfirmWaiting(ctx context.Context, id int64, now time.Time) error {
	return s.queries().ConfirmWaiting(ctx, &now, id)
}

// ExpireJobs ends jobs as stale, and buries them. Lanes that are empty then are parked: no batch reads those of an account without the
// App, or without a pool (TEN-2).
func (s *Store) ExpireJobs(ctx context.Context, before, unasked, now time.Time, most int) ([]int64, error) {
	var ids []int64
	err := s.inTx(ctx, "giving up jobs", func(q *sqlcgen.Queries) error {
		rows, err := q.ExpireJobs(ctx, sqlcgen.ExpireJobsParams{
			Before: before, UnaskedBefore: unasked, Most: int32(most), Now: &now, //nolint:gosec // a small bound
		})
		if err != nil {
			return err
		}
		ids = nil
		var left []lane
		for _, row := range rows {
			ids, left = append(ids, row.ID), append(left, lane{row.LabelKey, row.AccountID})
		}
		return parkEmptied(ctx, q, left...)
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// SessionsLost notes that pods were lost while their jobs were running.
func (s *Store) SessionsLost(ctx context.Context, podUIDs []string, now time.Time) error {
	return s.queries().SessionsLost(ctx, &now, podUIDs)
}

// JobsLostWithTheirPods lists failed jobs whose pods were lost before.
func (s *Store) JobsLostWithTheirPods(ctx context.Context, since, now time.Time, most int) ([]catchup.LostJob, error) {
	rows, err := s.queries().JobsLostWithTheirPods(ctx, &now, &since, int32(most)) //nolint:gosec // a small bound
	if err != nil {
		return nil, err
	}
	list := make([]catchup.LostJob, len(rows))
	for i, row := range rows {
		list[i] = catchup.LostJob{
			ID: row.ID, RunID: row.RunID, RunAttempt: row.RunAttempt, Name: row.Name, Repository: row.Repository,
			RunnerName: row.RunnerName, PodName: row.PodName, LostAt: deref(row.LostAt),
			Account: dispatch.Account{ID: row.AccountID, Login: row.Login, User: row.Kind == "User", InstallationID: row.InstallationID},
		}
	}
	return list, nil
}

// RerunsOfRun says how many attempts of the run were asked for since that one, and whether GitHub's word is awaited on a job
// of it whose pod was lost.
func (s *Store) RerunsOfRun(ctx context.Context, runID, attempt int64, since time.Time) (int64, bool, error) {
	row, err := s.queries().RerunsOfRun(ctx, runID, attempt, since)
	return row.Asked, row.Awaited, err
}

// RerunLater puts off the question whether a job is run again.
func (s *Store) RerunLater(ctx context.Context, id int64, at time.Time) error {
	return s.queries().RerunLater(ctx, &at, id)
}

// BookRerun books a re-run before GitHub is asked for it.
func (s *Store) BookRerun(ctx context.Context, id int64, most int, now time.Time) (bool, error) {
	rerun, ok, err := found(s.queries().BookRerun(ctx, &now, int64(most), id))
	return ok && rerun == "asked", err
}

// UnbookRerun takes a booking back: the job is checked again then, or never.
func (s *Store) UnbookRerun(ctx context.Context, id int64, again time.Time) error {
	next := "refused"
	if !again.IsZero() {
		next = ""
	}
	return s.queries().UnbookRerun(ctx, next, nonZero(again), id)
}
