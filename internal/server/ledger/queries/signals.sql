-- name: WaitingLanes :many
-- A lane that is parked as empty has no queued job: the transaction that queues one unparks it.
SELECT l.label_key, l.account_id, a.login, a.kind, a.installation_id,
    (a.suspended OR a.paused OR a.deleted_at IS NOT NULL)::boolean AS suspended
FROM job_lanes l
JOIN accounts a ON a.id = l.account_id
WHERE l.label_key = ANY (@label_keys::text[]) AND l.parked <> 'empty'
ORDER BY l.account_id, l.label_key;

-- name: LimitsOfAccounts :many
SELECT account_id, platform, milli_cpu, memory_mb, jobs, repository_jobs FROM account_limits
WHERE account_id = ANY (@accounts::bigint[]);

-- name: UsageOfAccounts :many
SELECT account_id, platform, count(*) AS jobs, sum(milli_cpu)::bigint AS milli_cpu, sum(memory_mb)::bigint AS memory_mb
FROM runner_claims
WHERE account_id = ANY (@accounts::bigint[]) AND (state IN ('claimed', 'minted', 'executing') OR state = 'spent' AND stopped_at IS NULL)
GROUP BY account_id, platform;

-- name: LookIntoLanes :many
-- No lane is read further than it is asked to: not the backlog decides what this costs.
SELECT l.label_key::text AS label_key, l.account_id::bigint AS account_id, c.jobs, g.held, g.refused, o.ids, o.queued_at, o.repositories,
    coalesce(e.id, 0)::bigint AS last_id, coalesce(e.queued_at, 'epoch')::timestamptz AS last_queued_at
FROM (SELECT unnest(@label_keys::text[]) AS label_key, unnest(@accounts::bigint[]) AS account_id,
    unnest(@counts::bigint[]) AS counted, unnest(@ages::bigint[]) AS aged, unnest(@named::boolean[]) AS named, unnest(@lasts::bigint[]) AS last) l
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs FROM (
        SELECT 1 FROM workflow_jobs w
        WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
        LIMIT l.counted) counted
) c
CROSS JOIN LATERAL (
    SELECT count(*) AS held, count(*) FILTER (WHERE held.held IN ('refused', 'refused_job')) AS refused FROM (
        SELECT w.held FROM workflow_jobs w
        WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held <> ''
        LIMIT l.counted) held
) g
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(h.id ORDER BY h.queued_at, h.id), '{}')::bigint[] AS ids,
        coalesce(array_agg(h.queued_at ORDER BY h.queued_at, h.id), '{}')::timestamptz[] AS queued_at,
        coalesce(array_agg(h.repository ORDER BY h.queued_at, h.id) FILTER (WHERE l.named), '{}')::text[] AS repositories
    FROM (
        SELECT w.id, w.queued_at, w.repository FROM workflow_jobs w
        WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
        ORDER BY w.queued_at, w.id LIMIT l.aged) h
) o
LEFT JOIN LATERAL (
    SELECT w.id, w.queued_at FROM workflow_jobs w
    WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
    ORDER BY w.queued_at, w.id OFFSET greatest(l.last - 1, 0) LIMIT least(l.last, 1)
) e ON true;

-- name: RepositoryUsageOfAccounts :many
-- Of accounts that have a cap: what runs of each repository.
SELECT c.account_id, c.platform, j.repository, count(*) AS jobs
FROM runner_claims c CROSS JOIN LATERAL (SELECT w.repository FROM workflow_jobs w WHERE w.id = c.job_id LIMIT 1) j
WHERE c.account_id = ANY (@accounts::bigint[]) AND c.state IN ('claimed', 'minted', 'executing')
GROUP BY c.account_id, c.platform, j.repository;

-- name: PoolRunners :many
-- A session whose pod is forgotten was never closed, and is not open either: nothing runs there any more.
SELECT c.namespace, c.pool,
    count(*) FILTER (WHERE c.state IN ('claimed', 'minted', 'executing')) AS claimed,
    count(*) FILTER (WHERE c.state IN ('claimed', 'minted', 'executing') OR s.pod_uid IS NOT NULL) AS occupied
FROM runner_claims c
LEFT JOIN runner_sessions s ON s.pod_uid = c.pod_uid AND s.ended_at IS NULL
GROUP BY c.namespace, c.pool;

-- name: SessionChanges :many
-- By how much the number of open sessions changes at each of so many minutes: only sessions that ended since then, or
-- whose pods are not forgotten, are read, and the answer is as long as there are pools.
WITH spans AS (
    SELECT e.namespace, e.pool,
        greatest(0, ceil(extract(epoch FROM e.started_at - @since::timestamptz) / 60))::bigint AS first,
        least(@minutes::bigint, ceil(extract(epoch FROM e.ended_at - @since::timestamptz) / 60))::bigint AS past
    FROM runner_sessions e WHERE e.ended_at > @since::timestamptz
    UNION ALL
    SELECT o.namespace, o.pool,
        greatest(0, ceil(extract(epoch FROM o.started_at - @since::timestamptz) / 60))::bigint, @minutes::bigint
    FROM runner_sessions o JOIN runner_claims c ON c.pod_uid = o.pod_uid WHERE o.ended_at IS NULL
), changes AS (
    SELECT s.namespace, s.pool, s.first AS minute, 1 AS change FROM spans s WHERE s.first < s.past
    UNION ALL
    SELECT s.namespace, s.pool, s.past, -1 FROM spans s WHERE s.first < s.past
)
SELECT c.namespace, c.pool, c.minute::bigint AS minute, sum(c.change)::bigint AS change
FROM changes c GROUP BY c.namespace, c.pool, c.minute;

-- name: ProvenEnds :many
-- EXCL-4: an end without a proof is nothing to remove a pod on.
SELECT pod_uid, namespace, pod_name, pool, proof FROM runner_claims
WHERE state IN ('spent', 'retired') AND proof <> '' AND ended_at <= @before
ORDER BY ended_at, pod_uid;
