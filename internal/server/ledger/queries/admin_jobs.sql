-- name: LiveJobIDs :many
-- The latest of those that are in one of these states, none of which is an end: of each state no more are read than are asked for. The
-- condition is written as the index workflow_jobs_live has it; and the state as a span of one, so that no other index has the order.
SELECT j.id FROM unnest(@states::text[]) AS s (state)
CROSS JOIN LATERAL (
    SELECT w.id FROM workflow_jobs w
    WHERE w.state >= s.state AND (w.state, w.id) < (s.state, @before::bigint) AND w.state NOT IN ('completed', 'cancelled', 'stale')
        AND (@repository::text = '' OR lower(w.repository) = lower(@repository::text))
    ORDER BY w.state DESC, w.id DESC LIMIT @most) j
ORDER BY j.id DESC LIMIT @most;

-- name: JobIDsOfAccounts :many
-- The same of these accounts alone, and of any state.
SELECT j.id FROM unnest(@accounts::bigint[]) AS a (id) CROSS JOIN unnest(@states::text[]) AS s (state)
CROSS JOIN LATERAL (
    SELECT w.id FROM workflow_jobs w
    WHERE w.account_id = a.id AND w.state >= s.state AND (w.state, w.id) < (s.state, @before::bigint)
        AND (@repository::text = '' OR lower(w.repository) = lower(@repository::text))
    ORDER BY w.state DESC, w.id DESC LIMIT @most) j
ORDER BY j.id DESC LIMIT @most;

-- name: JobIDs :many
-- The latest of all, GitHub's ids grow; those that are in one of these states are sought among them.
SELECT w.id FROM workflow_jobs w
WHERE w.id < @before AND w.state = ANY (@states::text[])
    AND (@repository::text = '' OR lower(w.repository) = lower(@repository::text))
ORDER BY w.id DESC LIMIT @most;

-- name: SearchLiveJobs :one
-- Of the newest live jobs in these states, those that match. Of each state at most scan are read. Rest is the lowest id that was read, where there may be
-- older ones; else 0. The condition is written as the index workflow_jobs_live has it.
WITH seen AS MATERIALIZED (
    SELECT j.id, j.repository, j.name FROM unnest(@states::text[]) AS s (state)
    CROSS JOIN LATERAL (
        SELECT w.id, w.repository, w.name FROM workflow_jobs w
        WHERE w.state >= s.state AND (w.state, w.id) < (s.state, @before::bigint) AND w.state NOT IN ('completed', 'cancelled', 'stale')
        ORDER BY w.state DESC, w.id DESC LIMIT @scan::integer) j
    ORDER BY j.id DESC LIMIT @scan::integer
)
SELECT ARRAY(
    SELECT m.id FROM seen m
    WHERE (@repository::text = '' OR lower(m.repository) = lower(@repository::text))
        AND (@part::text = '' OR strpos(lower(m.repository), lower(@part::text)) > 0)
        AND (@name::text = '' OR strpos(lower(m.name), lower(@name::text)) > 0)
    ORDER BY m.id DESC LIMIT @most::integer)::bigint[] AS ids,
    coalesce((SELECT min(e.id) FROM seen e HAVING count(*) >= @scan::integer), 0)::bigint AS rest;

-- name: SearchJobsOfAccounts :one
-- The same of these accounts alone, and of any state.
WITH seen AS MATERIALIZED (
    SELECT j.id, j.repository, j.name, j.conclusion FROM unnest(@accounts::bigint[]) AS a (id) CROSS JOIN unnest(@states::text[]) AS s (state)
    CROSS JOIN LATERAL (
        SELECT w.id, w.repository, w.name, w.conclusion FROM workflow_jobs w
        WHERE w.account_id = a.id AND w.state >= s.state AND (w.state, w.id) < (s.state, @before::bigint)
        ORDER BY w.state DESC, w.id DESC LIMIT @scan::integer) j
    ORDER BY j.id DESC LIMIT @scan::integer
)
SELECT ARRAY(
    SELECT m.id FROM seen m
    WHERE (cardinality(@conclusions::text[]) = 0 OR m.conclusion = ANY (@conclusions::text[]))
        AND (@repository::text = '' OR lower(m.repository) = lower(@repository::text))
        AND (@part::text = '' OR strpos(lower(m.repository), lower(@part::text)) > 0)
        AND (@name::text = '' OR strpos(lower(m.name), lower(@name::text)) > 0)
    ORDER BY m.id DESC LIMIT @most::integer)::bigint[] AS ids,
    coalesce((SELECT min(e.id) FROM seen e HAVING count(*) >= @scan::integer), 0)::bigint AS rest;

-- name: SearchJobs :one
-- The same of all accounts, and of any state: the newest are read, whatever their state is.
WITH seen AS MATERIALIZED (
    SELECT w.id, w.repository, w.name, w.state, w.conclusion FROM workflow_jobs w
    WHERE w.id < @before::bigint ORDER BY w.id DESC LIMIT @scan::integer
)
SELECT ARRAY(
    SELECT m.id FROM seen m
    WHERE m.state = ANY (@states::text[])
        AND (cardinality(@conclusions::text[]) = 0 OR m.conclusion = ANY (@conclusions::text[]))
        AND (@repository::text = '' OR lower(m.repository) = lower(@repository::text))
        AND (@part::text = '' OR strpos(lower(m.repository), lower(@part::text)) > 0)
        AND (@name::text = '' OR strpos(lower(m.name), lower(@name::text)) > 0)
    ORDER BY m.id DESC LIMIT @most::integer)::bigint[] AS ids,
    coalesce((SELECT min(e.id) FROM seen e HAVING count(*) >= @scan::integer), 0)::bigint AS rest;

-- name: JobsInFull :many
-- Each with what belongs to it, by their keys. The session is that of the runner that GitHub has named: a pod whose job is over loses its claim, but
-- not its session.
SELECT w.id, w.account_id, w.repository, w.run_id, w.run_attempt, w.name, w.workflow, w.head_branch, w.head_sha, w.label_key, w.state,
    w.held, w.conclusion, w.runner_name, w.queued_at, coalesce(w.created_at, w.queued_at)::timestamptz AS created_at, w.started_at, w.completed_at,
    a.login, s.labels,
    coalesce(c.namespace, '')::text AS namespace, coalesce(c.pod_name, '')::text AS pod, coalesce(c.pool, '')::text AS pool, coalesce(c.state, '')::text AS claim,
    coalesce(c.runner_name, '')::text AS registered, c.claimed_at, c.minted_at, c.acknowledged_at, w.received_at, w.approved_at,
    coalesce(e.namespace, '')::text AS session_namespace, coalesce(e.pod_name, '')::text AS session_pod, coalesce(e.pool, '')::text AS session_pool,
    e.claimed_at AS session_claimed_at, e.started_at AS session_started_at, e.acknowledged_at AS session_acknowledged_at, e.exit_code, e.lost_at
FROM workflow_jobs w
CROSS JOIN LATERAL (SELECT o.login FROM accounts o WHERE o.id = w.account_id LIMIT 1) a
CROSS JOIN LATERAL (SELECT k.labels FROM label_sets k WHERE k.label_key = w.label_key LIMIT 1) s
LEFT JOIN LATERAL (SELECT r.pod_uid FROM runner_claims r WHERE r.job_id = w.id AND r.state IN ('claimed', 'minted', 'executing') LIMIT 1) o ON true
LEFT JOIN runner_claims c ON c.pod_uid = o.pod_uid
LEFT JOIN LATERAL (SELECT x.pod_uid FROM runner_sessions x WHERE x.executed_job_id = w.id AND x.runner_name = w.runner_name
    ORDER BY x.started_at DESC LIMIT 1) f ON true
LEFT JOIN runner_sessions e ON e.pod_uid = f.pod_uid
WHERE w.id = ANY (@ids::bigint[])
ORDER BY w.id DESC;

-- name: RecentConclusions :many
-- How many of the newest jobs that have completed since then had which conclusion.
SELECT r.conclusion, count(*) AS jobs FROM (
    SELECT w.conclusion FROM workflow_jobs w
    WHERE w.completed_at IS NOT NULL AND w.completed_at > @since::timestamptz
    ORDER BY w.completed_at DESC LIMIT @most::integer) r
GROUP BY r.conclusion ORDER BY r.conclusion;

-- name: OlderInLane :one
-- As far as it is worth counting.
SELECT count(*) FROM (
    SELECT 1 FROM workflow_jobs w
    WHERE w.label_key = @label_key AND w.account_id = @account_id AND w.state = 'queued' AND w.held = ''
        AND (w.queued_at, w.id) < (@queued_at::timestamptz, @id::bigint)
    LIMIT @most) older;

-- name: RunningOfRepository :many
SELECT c.platform, count(*) AS jobs
FROM runner_claims c CROSS JOIN LATERAL (SELECT w.repository FROM workflow_jobs w WHERE w.id = c.job_id LIMIT 1) j
WHERE c.account_id = @account_id::bigint AND j.repository = @repository::text AND c.state IN ('claimed', 'minted', 'executing')
GROUP BY c.platform;
