package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func createDatabase(tb testing.TB, name string) {
	tb.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, database.URL())
	require.NoError(tb, err)
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		conn, err := pgx.Connect(ctx, database.URL())
		require.NoError(tb, err)
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		require.NoError(tb, err)
	})
}

// bareCommit measures one transaction that inserts two rows, on the same server: the limit of P1.
type bareCommit struct {
	conn    *pgx.Conn
	samples []time.Duration
}

func newBareCommit(tb testing.TB, url string) *bareCommit {
	tb.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(context.Background(), "CREATE TABLE IF NOT EXISTS bare (id uuid PRIMARY KEY, at timestamptz)")
	require.NoError(tb, err)
	return &bareCommit{conn: conn}
}

func (b *bareCommit) measure(tb testing.TB) {
	tb.Helper()
	ctx := context.Background()
	start := time.Now()
	err := pgx.BeginFunc(ctx, b.conn, func(tx pgx.Tx) error {
		for range 2 {
			if _, err := tx.Exec(ctx, "INSERT INTO bare VALUES ($1, now())", uuid.NewString()); err != nil {
				return err
			}
		}
		return nil
	})
	b.samples = append(b.samples, time.Since(start))
	require.NoError(tb, err)
}

// scriptRate is the best rate at which plain SQL makes the writes of a dispatch: a claim, its registration, the job's two
// moves, the claim's and the registration's second, and the session. A transaction has as many jobs as a batch of ours at
// most, over several connections. It decides nothing. The limit of P2.
func scriptRate(tb testing.TB, url string, jobs int) float64 {
	tb.Helper()
	best := 0.0
	for _, connections := range []int32{1, 2, 4} {
		cfg, err := pgxpool.ParseConfig(url)
		require.NoError(tb, err)
		cfg.MaxConns = connections
		pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
		require.NoError(tb, err)
		ids := scriptJobs(tb, pool, jobs)
		batches := make(chan []int64, len(ids)/dispatch.DefaultMaxBatch+1)
		for start := 0; start < len(ids); start += dispatch.DefaultMaxBatch {
			batches <- ids[start:min(start+dispatch.DefaultMaxBatch, len(ids))]
		}
		close(batches)
		start := time.Now()
		var wg sync.WaitGroup
		for range connections {
			wg.Go(func() {
				for batch := range batches {
					if err := scriptBatch(pool, batch); err != nil {
						tb.Errorf("the script's batch: %v", err)
						return
					}
				}
			})
		}
		await.ReturnWithin(tb, 10*time.Minute, wg.Wait, "all jobs are claimed")
		best = max(best, float64(jobs)/time.Since(start).Seconds())
		pool.Close()
	}
	return best
}

// scriptJobs queues jobs of one account under unused ids.
func scriptJobs(tb testing.TB, pool *pgxpool.Pool, n int) []int64 {
	tb.Helper()
	ctx := context.Background()
	base := time.Now().UnixNano()
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = base + int64(i)
	}
	for _, sql := range []string{
		`INSERT INTO accounts VALUES (-1, 'script', 'Organization', -1, false, now(), now()) ON CONFLICT DO NOTHING`,
		`INSERT INTO label_sets VALUES ('["script"]', '{script}') ON CONFLICT DO NOTHING`,
	} {
		_, err := pool.Exec(ctx, sql)
		require.NoError(tb, err)
	}
	_, err := pool.Exec(ctx, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow,
		head_branch, head_sha, label_key, state, queued_at, updated_at)
		SELECT unnest($1::bigint[]), -1, 'script/app', 1, 1, 'build', 'ci', 'main', 'abc', '["script"]', 'queued', now(), now()`, ids)
	require.NoError(tb, err)
	return ids
}

func scriptBatch(pool *pgxpool.Pool, ids []int64) error {
	ctx := context.Background()
	uids, names := make([]string, len(ids)), make([]string, len(ids))
	for i := range ids {
		uids[i] = uuid.NewString()
		names[i] = fmt.Sprintf("script-%s", uids[i])
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, step := range []struct {
			sql  string
			args []any
		}{
			{`INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, milli_cpu,
				memory_mb, label_key, job_id, runner_name, claimed_at)
				SELECT unnest($1::text[]), 'runners', unnest($1::text[]), 'linux', 'claimed', 1, -1, 'linux', 4000, 16384,
				'["script"]', unnest($2::bigint[]), unnest($3::text[]), now()`, []any{uids, ids, names}},
			{`INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, generation, state, created_at)
				SELECT unnest($1::text[]), unnest($2::text[]), -1, 'script', 1, 'intended', now()`, []any{names, uids}},
			{`UPDATE workflow_jobs SET state = 'claimed', updated_at = now() WHERE id = ANY ($1::bigint[])`, []any{ids}},
			{`UPDATE runner_claims SET state = 'minted', minted_at = now() WHERE pod_uid = ANY ($1::text[])`, []any{uids}},
			{`UPDATE runner_registrations SET state = 'alive', runner_id = 1 WHERE runner_name = ANY ($1::text[])`, []any{names}},
			{`UPDATE workflow_jobs SET state = 'minted', updated_at = now() WHERE id = ANY ($1::bigint[])`, []any{ids}},
			{`INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb,
				runner_name, job_id, started_at)
				SELECT unnest($1::text[]), 'runners', unnest($1::text[]), 'linux', -1, 'linux', 4000, 16384, unnest($2::text[]),
				unnest($3::bigint[]), now()`, []any{uids, names, ids}},
		} {
			if _, err := tx.Exec(ctx, step.sql, step.args...); err != nil {
				return err
			}
		}
		return nil
	})
}
