-- name: StandingRefusal :one
-- How often what is refused again has failed so far, and how many refusals the account has, as far as that makes a difference.
SELECT coalesce((SELECT r.failures FROM refusals r
        WHERE r.account_id = @account_id AND r.repository = @repository AND r.job_id = @job_id AND r.namespace = @namespace AND r.pool = @pool
        LIMIT 1), 0)::bigint AS failures,
    (SELECT count(*) FROM (SELECT 1 FROM refusals o WHERE o.account_id = @account_id AND o.repository <> '' LIMIT 1800) few) AS standing;

-- name: UpsertRefusal :exec
-- While jobs wait for it, only the job that is tried again counts: what else is refused was asked for before they waited, however much that was.
INSERT INTO refusals (account_id, repository, job_id, namespace, pool, reason, status, message, failures, waits, trying, since, next_at)
VALUES (@account_id, @repository, @job_id, @namespace, @pool, @reason, @status, @message, 1, @waits, @trying, @now, @next_at)
ON CONFLICT (account_id, repository, job_id, namespace, pool) DO UPDATE SET reason = excluded.reason, status = excluded.status,
    message = excluded.message, failures = refusals.failures + 1, waits = excluded.waits, trying = excluded.trying, next_at = excluded.next_at
WHERE refusals.repository = '' OR NOT refusals.waits OR refusals.next_at <= @now OR refusals.trying = @attempt::bigint;

-- name: HoldForRefusal :exec
UPDATE workflow_jobs SET held = @held WHERE id = @id AND state || '' = 'queued';

-- name: SetRefusedAside :execrows
-- The oldest jobs of the lanes, at most so many a lane, as far as their repositories wait for what GitHub has refused: a pick that met them does
-- not meet them again. The job that finds out whether that is over stays.
UPDATE workflow_jobs SET held = 'refused'
WHERE workflow_jobs.id = ANY (ARRAY(
    SELECT j.id FROM workflow_jobs j
    WHERE j.state || '' = 'queued' AND j.held || '' = '' AND j.id = ANY (ARRAY(
        SELECT c.id
        FROM (SELECT DISTINCT v.label_key, v.account_id FROM
            (SELECT unnest(@label_keys::text[]) AS label_key, unnest(@accounts::bigint[]) AS account_id) v) l
        CROSS JOIN LATERAL (
            SELECT w.id, w.repository FROM workflow_jobs w
            WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
            ORDER BY w.queued_at, w.id LIMIT @most
        ) c
        CROSS JOIN LATERAL (SELECT 1 FROM refusals r
            WHERE r.account_id = l.account_id AND r.repository = c.repository AND r.job_id = 0 AND r.waits AND r.trying <> c.id
                AND r.pool = @pool AND r.namespace = @namespace LIMIT 1) waiting
    ))
    FOR UPDATE SKIP LOCKED));

-- name: DropRefusals :many
-- A runner was registered: what was refused of its repository, of its job, of its pool or of the account is over. Where runners got no job,
-- only a job that has started proves the contrary.
DELETE FROM refusals WHERE account_id = @account_id AND reason = 'refused'
    AND (repository = '' AND pool = '' OR repository IN ('', @repository) AND job_id IN (0, @job_id::bigint) AND pool = @pool AND namespace = @namespace)
RETURNING repository, job_id;

-- name: ReturnRefused :many
-- The oldest jobs of a repository that are held for a refusal come back into their lanes: those of a pool's label sets, or any.
UPDATE workflow_jobs SET held = ''
WHERE workflow_jobs.id IN (
    SELECT w.id FROM workflow_jobs w
    WHERE w.account_id = @account_id AND w.repository = @repository AND w.state = 'queued' AND w.held <> '' AND w.held = 'refused'
        AND (@any_labels::boolean OR w.label_key = ANY (@label_keys::text[]))
    ORDER BY w.queued_at, w.id LIMIT @most FOR UPDATE SKIP LOCKED)
RETURNING id, label_key, queued_at;

-- name: ReturnRefusedJob :many
UPDATE workflow_jobs SET held = '' WHERE workflow_jobs.id = @id AND state || '' = 'queued' AND held = 'refused_job'
RETURNING id, label_key, queued_at;

-- name: ReturnForgotten :many
-- The oldest jobs of a repository that are held for a refusal which does not stand any more: what makes good what went past the end of one.
UPDATE workflow_jobs SET held = ''
WHERE workflow_jobs.id IN (
    SELECT w.id FROM workflow_jobs w
    WHERE w.account_id = @account_id AND w.repository = @repository AND w.state = 'queued' AND w.held <> ''
        AND (w.held = 'refused' AND NOT EXISTS (SELECT 1 FROM refusals r
                WHERE r.account_id = w.account_id AND r.repository = w.repository AND r.job_id = 0)
            OR w.held = 'refused_job' AND NOT EXISTS (SELECT 1 FROM refusals o
                WHERE o.account_id = w.account_id AND o.repository = w.repository AND o.job_id = w.id))
    ORDER BY w.queued_at, w.id LIMIT @most FOR UPDATE SKIP LOCKED)
RETURNING label_key, queued_at;

-- name: DueRefusals :many
SELECT account_id, repository, job_id, namespace, pool, reason, waits, trying FROM refusals
WHERE next_at <= @now AND repository <> ''
ORDER BY next_at LIMIT @most FOR UPDATE SKIP LOCKED;

-- name: NextRefusal :many
SELECT next_at FROM refusals WHERE repository <> '' ORDER BY next_at LIMIT 1;

-- name: TriedJob :one
SELECT state, held, started_at FROM workflow_jobs WHERE id = @id;

-- name: TryRefusal :exec
UPDATE refusals SET trying = @trying, next_at = @next_at
WHERE account_id = @account_id AND repository = @repository AND job_id = @job_id AND namespace = @namespace AND pool = @pool;

-- name: DropRefusal :exec
DELETE FROM refusals
WHERE account_id = @account_id AND repository = @repository AND job_id = @job_id AND namespace = @namespace AND pool = @pool;

-- name: DropStaleRefusals :exec
-- Of accounts and pools: whatever goes by them renews them, or is gone.
DELETE FROM refusals WHERE next_at < @before AND repository = '';

-- name: HastenRefusals :exec
-- What no job waits for is only counted. It would be dropped if it were due, and accounts change often, such as by each new repository.
UPDATE refusals SET next_at = @now WHERE account_id = @account_id AND next_at > @now AND waits;

-- name: RefusalsOfAccount :many
SELECT * FROM refusals WHERE account_id = @account_id AND waits ORDER BY repository, job_id, namespace, pool LIMIT @most;

-- name: RefusalsOfJob :many
-- Those that a job waits for, the widest first.
SELECT * FROM refusals WHERE account_id = @account_id AND repository IN ('', @repository) AND job_id IN (0, @job_id::bigint)
ORDER BY repository, job_id, namespace, pool LIMIT 20;

-- name: AllRefusals :many
SELECT r.*, a.login FROM refusals r CROSS JOIN LATERAL (SELECT o.login FROM accounts o WHERE o.id = r.account_id LIMIT 1) a
WHERE r.waits ORDER BY r.since, r.account_id, r.repository, r.job_id, r.namespace, r.pool LIMIT @most;
