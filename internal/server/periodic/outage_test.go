package periodic_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pgserver "github.com/bullpen-ci/bullpen/internal/dev/postgres"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/periodic"
)

// An outage of the database costs the passes that time, and stops no replica; an unavailable one does not keep a
// replica from stopping, either.
func TestRun_SurvivesAnOutageOfTheDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, directory := range []string{filepath.Dir(dir), dir} { // as root, Postgres is another user who has to pass
		require.NoError(t, os.Chmod(directory, 0o711)) //nolint:gosec // a test's directory
	}
	options := pgserver.Options{Dir: filepath.Join(dir, "pg"), FastUnsafe: true}
	server, err := pgserver.Start(t.Context(), options)
	require.NoError(t, err)
	require.NoError(t, ledger.Migrate(t.Context(), server.URL()))
	pass, ran := signal("steady", time.Second)
	checked := make(chan string, 10)
	r := start(t, server.URL(), periodic.Options{Passes: []periodic.Pass{pass},
		Check: func(_ context.Context, pod string) error { checked <- pod; return nil }})
	wait(t, ran, "the first run")

	require.NoError(t, server.Stop(t.Context()))
	require.Error(t, r.CheckPod(t.Context(), "pod-1"), "a request that is not stored is not promised")
	server, err = pgserver.Start(t.Context(), options)
	require.NoError(t, err)
	for len(ran) > 0 {
		<-ran // bounded: its length is not zero
	}
	wait(t, ran, "a run after the outage")
	require.NoError(t, r.CheckPod(t.Context(), "pod-1"))
	wait(t, checked, "a check after the outage")

	require.NoError(t, server.Stop(t.Context()))
	stopping := time.Now()
	r.stop()
	require.Less(t, time.Since(stopping), 20*time.Second)
}
