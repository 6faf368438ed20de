package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// Route is how connections reach PostgreSQL.
type Route int32

const (
	// RouteDirect: each connection is a session of PostgreSQL, which keeps its settings and its prepared statements.
	RouteDirect Route = iota
	// RoutePrepared leads through a connection pooler: each transaction may run in another session, and gets its settings itself. The pooler tracks
	// prepared statements, as PgBouncer does with max_prepared_statements, so statements are prepared and cached.
	RoutePrepared
	// RouteUnprepared leads through a pooler that does not track them: PostgreSQL parses and plans each statement each time.
	RouteUnprepared
)

// execMode is how statements are sent over the route. Without prepared statements their descriptions are cached: the round trips are the same.
func (r Route) execMode(configured pgx.QueryExecMode) pgx.QueryExecMode {
	if r == RouteUnprepared && configured == pgx.QueryExecModeCacheStatement { // NET-9
		return pgx.QueryExecModeCacheDescribe
	}
	return configured
}

// settings have each statement planned once for a connection, by its shape and not by the present statistics. On a new database, or one
// that grew since they were gathered, the tables look empty, and a sequential scan looks cheapest: so the statements of the ledger find
// rows by keys, and sequential scans remain where there is none. None of them is worth compiling to machine code, which takes seconds.
// docs/adr/0034 has the figures.
//
// Rows come in the order of an index: a page, whose size a plan does not know, would otherwise be all matching rows, gathered by a bitmap,
// and then sorted (docs/adr/0036). And no statement takes the cores of others by parallel workers.
//
// A transaction whose client is silent for a minute is terminated: a replica whose machine has lost its power would keep an
// account's limits locked until the operating system reports the dead connection to Postgres, which may take hours.
var settings = [][2]string{
	{"plan_cache_mode", "force_generic_plan"}, {"enable_seqscan", "off"}, {"enable_bitmapscan", "off"}, {"jit", "off"},
	{"max_parallel_workers_per_gather", "0"}, {"idle_in_transaction_session_timeout", "1min"},
}

var (
	// settleSession gives a session the settings.
	settleSession = settingsBy("SET %s = '%s'", "; ")
	// settleTransaction gives them to the transaction that it begins in a batch.
	settleTransaction = "SELECT " + settingsBy("set_config('%s', '%s', true)", ", ")
	// settleSnapshot does, before the transaction has its snapshot.
	settleSnapshot = settingsBy("SET LOCAL %s = '%s'", "; ")
)

func settingsBy(format, separator string) string {
	list := make([]string, len(settings))
	for i, s := range settings {
		list[i] = fmt.Sprintf(format, s[0], s[1])
	}
	return strings.Join(list, separator)
}

// findRoute says how a new connection reaches PostgreSQL, and gives the session the settings if it is the connection's own. A pooler announces a
// process of PostgreSQL that is not the one that executes statements, for that one changes.
func findRoute(ctx context.Context, conn *pgconn.PgConn) (Route, error) {
	pooled := fmt.Sprintf("pg_backend_pid() <> %d", conn.PID())
	// NET-9: what is set for the transaction is over with this statement, so no other client of the pooler gets it.
	results, err := conn.Exec(ctx, "SELECT "+pooled+", "+settingsBy("set_config('%s', '%s', "+pooled+")", ", ")).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("preparing a connection to the database: %w", err)
	}
	if string(results[0].Rows[0][0]) == "f" {
		return RouteDirect, nil
	}
	tracked, err := tracksStatements(ctx, conn)
	if err != nil {
		return 0, fmt.Errorf("preparing a connection to the database's pooler: %w", err)
	}
	if tracked {
		return RoutePrepared, nil
	}
	return RouteUnprepared, nil
}

// tracksStatements reports whether the pooler tracks prepared statements: then it prepares them by names of its own, and PostgreSQL does not know ours. All
// of it is one transaction, and so in one session.
func tracksStatements(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	name := "bullpen_" + rand.Text()
	pipeline := conn.StartPipeline(ctx)
	pipeline.SendPrepare(name, "SELECT 1", nil)
	pipeline.SendQueryParams("SELECT count(*) FROM pg_prepared_statements WHERE name = $1", [][]byte{[]byte(name)}, nil, nil, nil)
	pipeline.SendDeallocate(name)
	err := pipeline.Sync()
	unknown := false
	for err == nil {
		var result any
		if result, err = pipeline.GetResults(); err != nil || result == nil {
			break
		}
		if rows, ok := result.(*pgconn.ResultReader); ok {
			read := rows.Read()
			err = read.Err
			unknown = err == nil && string(read.Rows[0][0]) == "0"
		}
	}
	if closed := pipeline.Close(); err == nil {
		err = closed
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && !conn.IsClosed() {
		return false, nil
	}
	return unknown, err
}

// routedPool is a pool whose connections may lead through a pooler. How they do is found with each new connection, for what answers at the
// address may be replaced while the server runs.
type routedPool struct {
	*pgxpool.Pool
	configured pgx.QueryExecMode
	route      atomic.Int32
}

// Route of the newest connection.
func (p *routedPool) Route() Route { return Route(p.route.Load()) }

// reroutedError: connections take another route than before, which the next one is made for.
type reroutedError struct{}

func (reroutedError) Error() string {
	return "the database is reached in another way than before: retry"
}
func (reroutedError) SafeToRetry() bool { return true }

func (p *routedPool) afterConnect(ctx context.Context, conn *pgx.Conn) error {
	route, err := findRoute(ctx, conn.PgConn())
	if err != nil {
		return err
	}
	p.route.Store(int32(route))
	if conn.Config().DefaultQueryExecMode != route.execMode(p.configured) {
		return reroutedError{}
	}
	return nil
}

// openRouted is OpenPool for the store, which needs no session.
func openRouted(ctx context.Context, url string, maxConns int32) (*routedPool, error) {
	cfg, err := poolConfig(url, maxConns)
	if err != nil {
		return nil, err
	}
	p := &routedPool{configured: cfg.ConnConfig.DefaultQueryExecMode}
	renew := cfg.BeforeConnect
	cfg.BeforeConnect = func(ctx context.Context, connection *pgx.ConnConfig) error {
		connection.DefaultQueryExecMode = p.Route().execMode(p.configured)
		return renew(ctx, connection)
	}
	cfg.AfterConnect = p.afterConnect
	p.Pool, err = open(ctx, cfg)
	if errors.As(err, &reroutedError{}) {
		p.Pool, err = open(ctx, cfg)
	}
	return p, err
}

// opening is what comes first in a transaction.
func (p *routedPool) opening() []statement {
	if p.Route() == RouteDirect {
		return nil
	}
	return []statement{{sql: settleTransaction}} // NET-9
}

// single runs statements one by one, each in a transaction of its own.
func (p *routedPool) single() sqlcgen.DBTX {
	if p.Route() == RouteDirect {
		return p.Pool
	}
	return settled{p.Pool}
}

// inSnapshot runs fn in a transaction whose statements all see the same moment, and write nothing.
func (p *routedPool) inSnapshot(ctx context.Context, fn func(tx sqlcgen.DBTX) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	if p.Route() != RouteDirect {
		options.BeginQuery = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; " + settleSnapshot // NET-9
	}
	return pgx.BeginTxFunc(ctx, p.Pool, options, func(tx pgx.Tx) error { return fn(tx) })
}

// settled sends each statement together with the settings: one transaction, and one round trip.
type settled struct{ pool *pgxpool.Pool }

func (s settled) send(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	var batch pgx.Batch
	batch.Queue(settleTransaction) // NET-9
	batch.Queue(sql, args...)
	return skip(1, s.pool.SendBatch(ctx, &batch))
}

func (s settled) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return execResult(s.send(ctx, sql, args))
}

func (s settled) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return queryResult(s.send(ctx, sql, args))
}

func (s settled) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := queryResult(s.send(ctx, sql, args))
	return &pipelinedRow{rows, err}
}
