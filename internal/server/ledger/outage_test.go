package ledger

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/postgres"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/poolertest"
)

// A database that restarts under the server loses no webhook: neither the connections that died with it nor the moment
// until it answers again become the caller's failure, directly or through a pooler.
func TestStore_WaitsOutARestartOfTheDatabase(t *testing.T) {
	dir := t.TempDir()
	for _, directory := range []string{filepath.Dir(dir), dir} { // as root, Postgres is another user who has to pass
		require.NoError(t, os.Chmod(directory, 0o711)) //nolint:gosec // a test's directory
	}
	options := postgres.Options{Dir: filepath.Join(dir, "pg"), FastUnsafe: true}
	server, err := postgres.Start(t.Context(), options)
	require.NoError(t, err)
	require.NoError(t, Migrate(t.Context(), server.URL()))
	through := poolertest.Start(t, server.URL(), poolertest.Options{}).URL(t, server.URL())
	var stores []*Store
	for _, url := range []string{server.URL(), through} {
		store, err := Open(t.Context(), url, 2)
		require.NoError(t, err)
		t.Cleanup(store.Close)
		stores = append(stores, store)
	}
	queue := func(store *Store, id int64) error {
		_, err := store.RecordJob(t.Context(), dispatch.Delivery{GUID: uuid.NewString(), Event: "workflow_job", At: time.Now()},
			dispatch.JobEvent{
				Kind: fleet.JobEventQueued, Account: dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}, JobID: id,
				Repository: "acme/app", RunID: 1, Labels: []string{"linux"},
			})
		return err
	}
	for i, store := range stores {
		require.NoError(t, queue(store, int64(10+i)))
	}

	require.NoError(t, server.Stop(t.Context()))
	answered := make(chan error, len(stores))
	for i, store := range stores {
		go func() { answered <- queue(store, int64(20+i)) }()
	}
	server, err = postgres.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	for range stores {
		require.NoError(t, await.Receive(t, answered, "the statement is answered after the outage"))
	}
	for i, store := range stores {
		state, err := store.JobState(t.Context(), int64(20+i))
		require.NoError(t, err)
		require.Equal(t, fleet.JobQueued, state)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = stores[0].RecordJob(ctx, dispatch.Delivery{GUID: "g"}, dispatch.JobEvent{})
	require.ErrorIs(t, err, context.Canceled, "a caller who has gone is not waited for")
}

func TestOpen_SaysWhatToDoWhenPostgresIsAway(t *testing.T) {
	_, err := Open(t.Context(), "postgres://nobody:hunter2@127.0.0.1:1/none?connect_timeout=2", 0)
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, "is it running")
	require.NotContains(t, err.Error(), "hunter2")
	_, err = Open(t.Context(), "postgres://u:hunter2@host:port/x", 0)
	require.ErrorContains(t, err, "not one that Postgres understands")
	require.NotContains(t, err.Error(), "hunter2")
}
