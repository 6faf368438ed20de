-- name: HoldRemoved :exec
UPDATE workflow_jobs SET held = 'repository_removed', updated_at = @now
WHERE account_id = @account_id AND repository = @repository AND state = 'queued';

-- name: SetAside :execrows
-- The oldest jobs of the lanes, at most so many a lane, as far as their repositories are at their cap: a pick that met
-- them does not meet them again (ADR 0013).
UPDATE workflow_jobs SET held = 'repository_limit'
WHERE workflow_jobs.id = ANY (ARRAY(
    SELECT j.id FROM (
        SELECT c.id, c.repository, l.account_id, l.label_key
        FROM (SELECT DISTINCT v.label_key, v.account_id FROM
            (SELECT unnest(@label_keys::text[]) AS label_key, unnest(@accounts::bigint[]) AS account_id) v) l
        CROSS JOIN LATERAL (
            SELECT w.id, w.repository FROM workflow_jobs w
            WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
            ORDER BY w.queued_at, w.id LIMIT @most
        ) c
    ) h
    JOIN (SELECT unnest(@label_keys::text[]) AS label_key, unnest(@accounts::bigint[]) AS account_id,
        unnest(@repositories::text[]) AS repository) full_ ON full_.label_key = h.label_key
        AND full_.account_id = h.account_id AND full_.repository = h.repository
    JOIN workflow_jobs j ON j.id = h.id
    WHERE j.state || '' = 'queued' AND j.held || '' = ''
    FOR UPDATE OF j SKIP LOCKED));

-- name: RepositoryUsage :many
-- CLAIM-5: read after the locks, like the account's own usage. It costs what the accounts' live claims are, not the backlog.
SELECT c.account_id, j.repository, count(*) AS jobs
FROM runner_claims c CROSS JOIN LATERAL (SELECT w.repository FROM workflow_jobs w WHERE w.id = c.job_id LIMIT 1) j
WHERE c.account_id = ANY (@accounts::bigint[]) AND c.platform = @platform
  AND c.state IN ('claimed', 'minted', 'executing')
GROUP BY c.account_id, j.repository;

-- name: ReturnHeld :many
-- The oldest held jobs of a repository come back into their lanes.
UPDATE workflow_jobs SET held = ''
WHERE workflow_jobs.id IN (
    SELECT w.id FROM workflow_jobs w
    WHERE w.account_id = @account_id AND w.repository = @repository AND w.state = 'queued' AND w.held <> '' AND w.held = @reason
    ORDER BY w.queued_at, w.id LIMIT @most FOR UPDATE SKIP LOCKED)
RETURNING label_key, queued_at;

-- name: ReturnNext :many
-- A job has left its repository's share: the next one that was set aside takes its place. One probe of an index that is
-- empty where nothing is held.
UPDATE workflow_jobs SET held = ''
WHERE workflow_jobs.id IN (
    SELECT w.id FROM workflow_jobs w
    WHERE w.account_id = @account_id AND w.repository = (SELECT left_.repository FROM workflow_jobs left_ WHERE left_.id = @job_id)
      AND w.state = 'queued' AND w.held <> '' AND w.held = 'repository_limit'
    ORDER BY w.queued_at, w.id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING label_key, queued_at;

-- name: HoldForLabels :exec
-- A job that is held for another reason stays so: it returns when that has ended, whatever lanes its account has then.
UPDATE workflow_jobs SET held = 'label_sets' WHERE id = @id AND state || '' = 'queued' AND held = '';

-- name: ReturnForLabels :many
-- The oldest jobs of the account that are held for their label sets, as many as it may have further ones: each may have one of its own.
UPDATE workflow_jobs SET held = ''
WHERE workflow_jobs.id = ANY (ARRAY(
    SELECT w.id FROM workflow_jobs w
    WHERE w.account_id = @account_id AND w.state = 'queued' AND w.held = 'label_sets'
    ORDER BY w.queued_at, w.id LIMIT @most FOR UPDATE SKIP LOCKED))
RETURNING label_key, queued_at;

-- name: ReturnToLane :one
-- Behind FeedLane, which keeps the lane locked: the oldest jobs of the lane that are held for their label set, which needs no further one. Their
-- number.
WITH back AS (
    UPDATE workflow_jobs SET held = ''
    WHERE workflow_jobs.id = ANY (ARRAY(
        SELECT w.id FROM workflow_jobs w
        WHERE w.label_key = @label_key AND w.account_id = @account_id AND w.state = 'queued' AND w.held = 'label_sets'
        ORDER BY w.queued_at, w.id LIMIT @most FOR UPDATE SKIP LOCKED))
    RETURNING queued_at
)
UPDATE job_lanes l SET head_at = least(l.head_at, (SELECT min(b.queued_at) FROM back b))
WHERE l.label_key = @label_key AND l.account_id = @account_id
RETURNING (SELECT count(*) FROM back)::bigint;

-- name: LanesWithHeld :many
-- Lanes of the account with jobs that are held for their label set: a transaction held them while another made the lane.
SELECT l.label_key, h.queued_at FROM job_lanes l
CROSS JOIN LATERAL (
    SELECT w.queued_at FROM workflow_jobs w
    WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = 'label_sets'
    ORDER BY w.queued_at, w.id LIMIT 1
) h
WHERE l.account_id = @account_id LIMIT @most;

-- name: HeldAccounts :many
-- Accounts after that one with jobs set aside, one index probe each, however many jobs and repositories.
WITH RECURSIVE found AS (
    (SELECT w.account_id FROM workflow_jobs w
     WHERE w.state = 'queued' AND w.held <> '' AND w.account_id > @after ORDER BY w.account_id LIMIT 1)
    UNION ALL
    SELECT n.account_id FROM found f CROSS JOIN LATERAL (
        SELECT w.account_id FROM workflow_jobs w
        WHERE w.state = 'queued' AND w.held <> '' AND w.account_id > f.account_id
        ORDER BY w.account_id LIMIT 1) n
)
SELECT found.account_id::bigint AS account_id FROM found LIMIT @most;

-- name: HeldRepositoriesOfAccount :many
-- Its repositories after that one with jobs set aside, one index probe each.
WITH RECURSIVE found AS (
    (SELECT w.repository FROM workflow_jobs w
     WHERE w.account_id = @account_id AND w.state = 'queued' AND w.held <> '' AND w.repository > @after
     ORDER BY w.repository LIMIT 1)
    UNION ALL
    SELECT n.repository FROM found f CROSS JOIN LATERAL (
        SELECT w.repository FROM workflow_jobs w
        WHERE w.account_id = @account_id AND w.state = 'queued' AND w.held <> '' AND w.repository > f.repository
        ORDER BY w.repository LIMIT 1) n
)
SELECT found.repository::text AS repository FROM found LIMIT @most;
