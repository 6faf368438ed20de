package ledger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/poolertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// pooled runs a test for each kind of pooler, with the URLs of one database: through the pooler, and directly.
func pooled(t *testing.T, migrate postgrestest.Migrate, test func(t *testing.T, o poolertest.Options, through, direct string)) {
	t.Helper()
	for name, o := range poolertest.Kinds(t) {
		t.Run(name, func(t *testing.T) {
			direct := postgrestest.NewDatabase(t, migrate)
			pooler := poolertest.Start(t, direct, o)
			pooler.Settle(t, direct, 3)
			test(t, o, pooler.URL(t, direct), direct)
		})
	}
}

const shown = `SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN
	('plan_cache_mode', 'enable_seqscan', 'enable_bitmapscan', 'jit', 'max_parallel_workers_per_gather', 'idle_in_transaction_session_timeout')`

const (
	wantedSettings = "enable_bitmapscan=off enable_seqscan=off idle_in_transaction_session_timeout=60000 jit=off max_parallel_workers_per_gather=0 plan_cache_mode=force_generic_plan"
	usualSettings  = "enable_bitmapscan=on enable_seqscan=on idle_in_transaction_session_timeout=0 jit=on max_parallel_workers_per_gather=2 plan_cache_mode=auto"
)

// Each statement plans as in a session of its own, on any server connection, and no other client of the pooler gets the
// settings.
func TestPooler_NET9_SettingsAreOfEachTransactionAlone(t *testing.T) {
	pooled(t, nil, func(t *testing.T, o poolertest.Options, through, _ string) {
		ctx := t.Context()
		store, err := Open(ctx, through, 4)
		require.NoError(t, err)
		t.Cleanup(store.Close)
		want := RouteUnprepared
		if o.Statements > 0 {
			want = RoutePrepared
		}
		require.Equal(t, want, store.Route())
		other := stranger(t, through)
		read := func(q sqlcgen.DBTX) string {
			var found string
			require.NoError(t, q.QueryRow(ctx, shown).Scan(&found))
			return found
		}
		backends := map[int]bool{}
		for range 12 {
			require.Equal(t, wantedSettings, read(store.pool.single()), "a statement")
			require.NoError(t, pipelined(ctx, store.pool.Pool, func(p *pipeline) error {
				require.Equal(t, wantedSettings, read(p), "a transaction")
				return nil
			}, store.pool.opening()...))
			require.NoError(t, store.pool.inSnapshot(ctx, func(tx sqlcgen.DBTX) error {
				require.Equal(t, wantedSettings, read(tx), "a snapshot")
				return nil
			}))
			var pid int
			var found string
			require.NoError(t, other.QueryRow(ctx, strings.Replace(shown, "SELECT ", "SELECT pg_backend_pid(), ", 1)).Scan(&pid, &found))
			require.Equal(t, usualSettings, found, "another client")
			backends[pid] = true
		}
		require.Len(t, backends, 3, "all server connections are used")
	})
}

// stranger is another client of the pooler.
func stranger(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Migrations set lock_timeout for their session: they do not begin where it is another for each statement.
func TestMigrate_NET9_NeedsASession(t *testing.T) {
	ctx, direct := await.Context(t), postgrestest.NewDatabase(t, nil)
	transactions := poolertest.Start(t, direct, poolertest.Options{Servers: 1}).URL(t, direct)
	require.ErrorIs(t, Migrate(ctx, transactions), ErrNotHeard)
	state, err := InspectSchema(ctx, transactions)
	require.NoError(t, err)
	require.Zero(t, state.Has)

	require.NoError(t, Migrate(ctx, poolertest.Start(t, direct, poolertest.Options{Mode: poolertest.Session}).URL(t, direct)))
	state, err = InspectSchema(ctx, transactions)
	require.NoError(t, err)
	require.Equal(t, state.Needs, state.Has)
}

// Where notifications are lost the error names what to set.
func TestCheckListening_NET9_FailsWhereNotificationsAreLost(t *testing.T) {
	t.Parallel()
	direct := postgrestest.NewDatabase(t, nil)
	require.NoError(t, CheckListening(t.Context(), direct))

	for _, servers := range []int{1, 3} {
		pooler := poolertest.Start(t, direct, poolertest.Options{Servers: servers})
		pooler.Settle(t, direct, servers)
		err := CheckListening(t.Context(), pooler.URL(t, direct))
		require.ErrorIs(t, err, ErrNotHeard)
		require.ErrorContains(t, err, "BULLPEN_LISTEN_DATABASE_URL")
	}

	sessions := poolertest.Start(t, direct, poolertest.Options{Mode: poolertest.Session}).URL(t, direct)
	require.NoError(t, CheckListening(t.Context(), sessions))
}

// A server continues when a pooler takes the place of the database, and when it is removed again.
func TestOpen_FollowsAPoolerThatComesAndGoes(t *testing.T) {
	pooled(t, Migrate, func(t *testing.T, _ poolertest.Options, through, direct string) {
		ctx := t.Context()
		dir := t.TempDir()
		lead := func(to string) {
			cfg, err := pgx.ParseConfig(to)
			require.NoError(t, err)
			link := filepath.Join(dir, ".s.PGSQL.5432")
			require.NoError(t, os.RemoveAll(link))
			require.NoError(t, os.Symlink(filepath.Join(cfg.Host, fmt.Sprintf(".s.PGSQL.%d", cfg.Port)), link))
		}
		at, err := pgx.ParseConfig(direct)
		require.NoError(t, err)
		lead(direct)
		store, err := Open(ctx, fmt.Sprintf("host=%s user=%s password=%s dbname=%s", dir, at.User, at.Password, at.Database), 2)
		require.NoError(t, err)
		t.Cleanup(store.Close)
		for _, step := range []struct {
			to     string
			direct bool
		}{{direct, true}, {through, false}, {direct, true}} {
			lead(step.to)
			store.pool.Reset()
			for range 8 {
				queueJobs(t, store, 2)
			}
			require.Equal(t, step.direct, store.Route() == RouteDirect)
			state, err := store.JobState(ctx, 1)
			require.NoError(t, err)
			require.NotZero(t, state)
		}
	})
}
