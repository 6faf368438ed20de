-- name: StartedJobs :many
-- Jobs that started in the span, by minute and bucket of queue time. Their sessions are open, or ended since the begin of the span: two
-- indexes find them. Queue time is that of bullpen_job_wait_seconds: a job starts at GitHub's whole second, but not before the pod's
-- acknowledgement.
WITH begun AS (
    SELECT e.namespace, e.pool, e.executed_job_id, e.job_started_at, e.acknowledged_at
    FROM runner_sessions e WHERE e.ended_at > @since::timestamptz
    UNION ALL
    SELECT o.namespace, o.pool, o.executed_job_id, o.job_started_at, o.acknowledged_at
    FROM runner_sessions o WHERE o.ended_at IS NULL
), waited AS (
    SELECT b.namespace, b.pool, date_bin('1 minute', b.job_started_at, 'epoch')::timestamptz AS at,
        greatest(0, extract(epoch FROM greatest(b.job_started_at, b.acknowledged_at) - j.queued_at))::float8 AS seconds
    FROM begun b CROSS JOIN LATERAL (SELECT w.queued_at FROM workflow_jobs w WHERE w.id = b.executed_job_id LIMIT 1) j
    WHERE b.job_started_at >= @since::timestamptz AND b.job_started_at < @before::timestamptz
)
SELECT t.namespace, t.pool, t.at::timestamptz AS at, width_bucket(t.seconds, @bounds::float8[])::bigint AS bucket, count(*) AS jobs
FROM waited t GROUP BY t.namespace, t.pool, t.at, bucket;

-- name: RecordSamples :exec
-- The first gauges of a span stay. Rows without samples bring queue times, which are counted again for some minutes: the last count
-- replaces earlier ones. Rows that would not change are not written.
INSERT INTO pool_samples (namespace, pool, at, span, samples, queued, busy, idle, starting, capacity, peak_queued, peak_busy, queue_times)
SELECT s.namespace, s.pool, s.at, s.span::smallint, s.samples::smallint, s.queued, s.busy, s.idle, s.starting, s.capacity, s.peak_queued,
    s.peak_busy, s.queue_times::bigint[]
FROM (SELECT unnest(@namespaces::text[]) AS namespace, unnest(@pools::text[]) AS pool, unnest(@ats::timestamptz[]) AS at,
    unnest(@spans::bigint[]) AS span, unnest(@samples::bigint[]) AS samples, unnest(@queued::bigint[]) AS queued, unnest(@busy::bigint[]) AS busy,
    unnest(@idle::bigint[]) AS idle, unnest(@starting::bigint[]) AS starting, unnest(@capacity::bigint[]) AS capacity,
    unnest(@peak_queued::bigint[]) AS peak_queued, unnest(@peak_busy::bigint[]) AS peak_busy, unnest(@queue_times::text[]) AS queue_times) s
ON CONFLICT (namespace, pool, at) DO UPDATE SET
    samples = greatest(pool_samples.samples, excluded.samples),
    queued = CASE WHEN pool_samples.samples = 0 THEN excluded.queued ELSE pool_samples.queued END,
    busy = CASE WHEN pool_samples.samples = 0 THEN excluded.busy ELSE pool_samples.busy END,
    idle = CASE WHEN pool_samples.samples = 0 THEN excluded.idle ELSE pool_samples.idle END,
    starting = CASE WHEN pool_samples.samples = 0 THEN excluded.starting ELSE pool_samples.starting END,
    capacity = CASE WHEN pool_samples.samples = 0 THEN excluded.capacity ELSE pool_samples.capacity END,
    peak_queued = CASE WHEN pool_samples.samples = 0 THEN excluded.peak_queued ELSE pool_samples.peak_queued END,
    peak_busy = CASE WHEN pool_samples.samples = 0 THEN excluded.peak_busy ELSE pool_samples.peak_busy END,
    queue_times = CASE WHEN excluded.samples = 0 THEN excluded.queue_times ELSE pool_samples.queue_times END
WHERE pool_samples.span = excluded.span
    AND (pool_samples.samples = 0 AND excluded.samples > 0 OR excluded.samples = 0 AND pool_samples.queue_times <> excluded.queue_times);

-- name: TakeMinutes :many
-- Deletes the minutes of the oldest quarter hour that has any. Their sum replaces them in the same transaction.
DELETE FROM pool_samples WHERE span = 1 AND at < (
    SELECT date_bin('15 minutes', o.at, 'epoch') + interval '15 minutes' FROM pool_samples o
    WHERE o.span = 1 AND o.at < @before::timestamptz ORDER BY o.at LIMIT 1)
RETURNING *;

-- name: Samples :many
SELECT * FROM pool_samples WHERE namespace = @namespace AND pool = @pool AND at >= @since AND at < @before ORDER BY at;

-- name: PruneSamples :execrows
DELETE FROM pool_samples WHERE ctid = ANY (ARRAY(
    SELECT s.ctid FROM pool_samples s WHERE s.span = 15 AND s.at < @before ORDER BY s.at LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: UsageByDay :many
-- As Usage, by day (UTC) and of all pools together. A session is joined with the days that it overlaps only.
WITH spans AS (
    SELECT e.account_id, e.milli_cpu, e.memory_mb, e.executed_job_id, e.job_started_at, e.job_ended_at, e.started_at, e.ended_at AS until
    FROM runner_sessions e WHERE e.ended_at > @since::timestamptz AND e.started_at < @before::timestamptz
    UNION ALL
    SELECT o.account_id, o.milli_cpu, o.memory_mb, o.executed_job_id, o.job_started_at, o.job_ended_at, o.started_at, @now::timestamptz
    FROM runner_sessions o JOIN runner_claims c ON c.pod_uid = o.pod_uid WHERE o.ended_at IS NULL AND o.started_at < @before::timestamptz
), parts AS (
    SELECT s.milli_cpu, s.memory_mb, d.first,
        (s.started_at >= d.first)::int AS began,
        CASE WHEN s.job_started_at >= d.first AND s.job_started_at < d.first + interval '24 hours' THEN s.executed_job_id END AS job,
        greatest(0, extract(epoch FROM least(s.until, d.first + interval '24 hours') - greatest(s.started_at, d.first)))::float8 AS seconds,
        CASE WHEN s.job_started_at IS NULL THEN 0 -- greatest() passes over what is null
            ELSE greatest(0, extract(epoch FROM least(coalesce(s.job_ended_at, s.until), d.first + interval '24 hours')
                - greatest(s.job_started_at, d.first))) END::float8 AS job_seconds
    FROM spans s CROSS JOIN LATERAL (
        SELECT generate_series(date_trunc('day', greatest(s.started_at, @since::timestamptz), 'UTC'),
            least(s.until, @before::timestamptz) - interval '1 microsecond', interval '24 hours')::timestamptz AS first) d
    WHERE @account_id::bigint = 0 OR s.account_id = @account_id::bigint
)
SELECT p.first::timestamptz AS day, sum(p.began)::bigint AS sessions, count(DISTINCT p.job)::bigint AS jobs,
    sum(p.seconds)::float8 AS seconds, sum(p.job_seconds)::float8 AS job_seconds,
    sum(p.seconds * p.milli_cpu / 1000)::float8 AS cpu_seconds, sum(p.seconds * p.memory_mb)::float8 AS memory_mb_seconds
FROM parts p GROUP BY p.first ORDER BY p.first;
