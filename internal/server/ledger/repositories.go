package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// reportPrecision is the precision with which the last report of a repository is recorded.
const reportPrecision = time.Hour

// mostRepositories bounds what a replica remembers of them.
const mostRepositories = 10_000

// heard is what an event says of a repository: that it has jobs, and its other names.
type heard struct {
	fresh  bool // reported a while ago, under the same name
	name   string
	former []string // its other names
}

// noteRepository records that a repository has jobs: rarely, because thousands of events share one row. A repository with a known id keeps
// the name that GitHub used last, even if the event has another: a message may be days late.
func (s *Store) noteRepository(ctx context.Context, q *sqlcgen.Queries, ev dispatch.JobEvent, d dispatch.Delivery) (heard, error) {
	it := heard{name: ev.Repository}
	s.mu.Lock()
	it.fresh = d.At.Sub(s.repositories[fleet.Repository{Name: ev.Repository, ID: ev.RepositoryID}]) < reportPrecision
	s.mu.Unlock()
	if it.fresh {
		return it, nil
	}
	if err := q.NoteRepository(ctx, sqlcgen.NoteRepositoryParams{
		Name: ev.Repository, AccountID: ev.Account.ID, Now: d.At, RepositoryID: ev.RepositoryID, NamedAt: namedAt(d, ev),
	}); err != nil {
		return it, err
	}
	names, err := q.RepositoryNames(ctx, ev.RepositoryID)
	if err != nil || len(names) == 0 { // 0: its id is not known
		return it, err
	}
	it.name, it.former = names[0], names[1:]
	return it, nil
}

// namedAt is when GitHub used the event's name of the repository: the latest time in the event. A job that was read, instead of delivered,
// has the name by which it was requested, and proves nothing.
func namedAt(d dispatch.Delivery, ev dispatch.JobEvent) time.Time {
	at := time.Unix(0, 0)
	if d.GUID == "" {
		return at
	}
	for _, t := range []time.Time{ev.QueuedAt, ev.StartedAt, ev.CompletedAt} {
		at = later(at, t)
	}
	return at
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// follow gives what has not ended of a repository the name that it has now. Jobs and registrations of another repository
// that was made under its old name since are not touched: they have an id of their own.
//
// The name that it had may be known as the other one's by then, so that its rows are found by its id alone. Jobs are
// locked here after lanes, against the order of this package: Postgres aborts one of two that deadlock, and it is run
// again.
func follow(ctx context.Context, q *sqlcgen.Queries, accountID int64, is fleet.Repository, former []string) error {
	if is.ID == 0 {
		return nil
	}
	if err := q.RenameJobs(ctx, is.Name, is.ID, accountID); err != nil {
		return fmt.Errorf("renaming the jobs of %s: %w", is.Name, err)
	}
	if err := q.RenameRegistrations(ctx, is.Name, is.ID, accountID); err != nil {
		return fmt.Errorf("renaming the registrations of %s: %w", is.Name, err)
	}
	if len(former) == 0 {
		return nil
	}
	if err := q.RenameRemoved(ctx, accountID, is.Name, former); err != nil {
		return fmt.Errorf("renaming what was taken from the installation, %s: %w", is.Name, err)
	}
	return q.ForgetNames(ctx, is.ID, former)
}

// rememberRepository notes it once the transaction was committed.
func (s *Store) rememberRepository(ev dispatch.JobEvent, it heard, now time.Time) {
	key := fleet.Repository{Name: ev.Repository, ID: ev.RepositoryID}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(it.former) > 0 {
		for known := range s.repositories { // what is reported under a former name from here on is late
			if known.ID == key.ID && slices.Contains(it.former, known.Name) {
				delete(s.repositories, known)
			}
		}
	}
	if it.fresh || it.name != ev.Repository {
		return
	}
	if len(s.repositories) >= mostRepositories {
		clear(s.repositories)
	}
	s.repositories[key] = now
}
