package postgrestest

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

var migrations atomic.Int32

func migrateThings(ctx context.Context, url string) error {
	migrations.Add(1)
	return execute(ctx, url, "CREATE TABLE things (name text)")
}

func TestNewDatabase_EachTestHasItsOwnCopy(t *testing.T) {
	var urls [4]string
	t.Run("group", func(t *testing.T) {
		for i := range urls {
			t.Run("copy", func(t *testing.T) {
				t.Parallel()
				urls[i] = NewDatabase(t, migrateThings)
				conn, err := pgx.Connect(t.Context(), urls[i])
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close(context.Background()) })
				var rows int
				require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM things").Scan(&rows))
				require.Zero(t, rows, "another test's rows are seen")
				_, err = conn.Exec(t.Context(), "INSERT INTO things VALUES ('mine')")
				require.NoError(t, err)
			})
		}
	})
	require.Equal(t, int32(1), migrations.Load(), "the template is migrated once")
	for _, url := range urls {
		_, err := pgx.Connect(t.Context(), url)
		require.Error(t, err, "the database outlived its test")
	}
}

func TestNewDatabase_EmptyWithoutMigration(t *testing.T) {
	t.Parallel()
	require.NoError(t, execute(t.Context(), NewDatabase(t, nil), "CREATE TABLE things (name text)"))
}

func TestWithDatabase_BadURLIsExplainedWithoutItsPassword(t *testing.T) {
	_, err := withDatabase("host=x password=hunter2", "name")
	require.ErrorContains(t, err, EnvDatabaseURL)
	require.NotContains(t, err.Error(), "hunter2")
}
