-- name: Usage :many
-- What sessions took of each month of that span (UTC). A session is one runner, from its registration to its pod's end: there is one row of
-- it whatever happened, and each of its seconds belongs to one month. A session whose pod is forgotten and that was never closed is not
-- over yet: recovery closes it. A job that GitHub has given to two runners is one. Sessions that ended before the span are not read;
-- and what is added to the account's id keeps its index out of it, which has all sessions there ever were.
WITH spans AS (
    SELECT e.account_id, e.namespace, e.pool, e.platform, e.milli_cpu, e.memory_mb, e.executed_job_id, e.job_started_at, e.job_ended_at,
        e.started_at, e.ended_at AS until
    FROM runner_sessions e WHERE e.ended_at > @since::timestamptz AND e.started_at < @before::timestamptz
    UNION ALL
    SELECT o.account_id, o.namespace, o.pool, o.platform, o.milli_cpu, o.memory_mb, o.executed_job_id, o.job_started_at, o.job_ended_at,
        o.started_at, @now::timestamptz
    FROM runner_sessions o JOIN runner_claims c ON c.pod_uid = o.pod_uid WHERE o.ended_at IS NULL AND o.started_at < @before::timestamptz
), months AS (
    SELECT unnest(@firsts::timestamptz[]) AS first, unnest(@pasts::timestamptz[]) AS past
), parts AS (
    SELECT s.account_id, s.namespace, s.pool, s.platform, s.milli_cpu, s.memory_mb, m.first,
        (s.started_at >= m.first)::int AS began,
        CASE WHEN s.job_started_at >= m.first AND s.job_started_at < m.past THEN s.executed_job_id END AS job,
        greatest(0, extract(epoch FROM least(s.until, m.past) - greatest(s.started_at, m.first)))::float8 AS seconds,
        CASE WHEN s.job_started_at IS NULL THEN 0 -- greatest() passes over what is null
            ELSE greatest(0, extract(epoch FROM least(coalesce(s.job_ended_at, s.until), m.past) - greatest(s.job_started_at, m.first))) END::float8
            AS job_seconds
    FROM spans s, months m
    WHERE s.started_at < m.past AND s.until > m.first AND s.account_id + 0 > @after::bigint AND (@account_id::bigint = 0 OR s.account_id = @account_id::bigint)
)
SELECT p.account_id, coalesce(a.login, '')::text AS login, p.namespace, p.pool, p.platform, p.first::timestamptz AS month,
    sum(p.began)::bigint AS sessions, count(DISTINCT p.job)::bigint AS jobs, sum(p.seconds)::float8 AS seconds, sum(p.job_seconds)::float8 AS job_seconds,
    sum(p.seconds * p.milli_cpu / 1000)::float8 AS cpu_seconds, sum(p.seconds * p.memory_mb)::float8 AS memory_mb_seconds
FROM parts p LEFT JOIN accounts a ON a.id = p.account_id
GROUP BY p.account_id, a.login, p.namespace, p.pool, p.platform, p.first
ORDER BY p.account_id, p.first, p.namespace, p.pool, p.platform
LIMIT @most;
