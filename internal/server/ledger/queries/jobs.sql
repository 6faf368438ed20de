-- name: RecordDelivery :execrows
INSERT INTO webhook_deliveries (guid, event, received_at) VALUES (@guid, @event, @now)
ON CONFLICT (guid) DO NOTHING;

-- name: EnsureLabelSet :exec
INSERT INTO label_sets (label_key, labels) VALUES (@label_key, @labels) ON CONFLICT DO NOTHING;

-- name: LabelSetsFrom :many
-- Label sets that have a lane, in the order of bytes, each found by a probe behind the one before. Rows are made as far as they are read.
WITH RECURSIVE keys AS (
    (SELECT l.label_key FROM job_lanes l WHERE l.label_key COLLATE "C" >= @start ORDER BY l.label_key COLLATE "C" LIMIT 1)
    UNION ALL
    SELECT (SELECT n.label_key FROM job_lanes n WHERE n.label_key COLLATE "C" > k.label_key ORDER BY n.label_key COLLATE "C" LIMIT 1)
    FROM keys k WHERE k.label_key IS NOT NULL
)
SELECT k.label_key::text AS label_key FROM keys k WHERE k.label_key IS NOT NULL LIMIT @most;

-- name: LabelSetsAmong :many
-- Those of which there is a lane. Each is a probe, so that it does not matter how many others there are (TEN-1).
SELECT k.label_key::text AS label_key FROM unnest(@label_keys::text[]) AS k (label_key)
WHERE (SELECT l.label_key FROM job_lanes l WHERE l.label_key = k.label_key LIMIT 1) IS NOT NULL
ORDER BY k.label_key;

-- name: InsertJob :execrows
-- CLAIM-4: a tombstone bars the way in for a job whose row is gone. A job queues up behind those of its repository that
-- were set aside before it.
INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha,
    label_key, state, conclusion, runner_name, queued_at, started_at, completed_at, updated_at, received_at, repository_id, held)
SELECT @id, @account_id, @repository, @run_id, @run_attempt, @name, @workflow, @head_branch, @head_sha,
    @label_key, @state, @conclusion, @runner_name, @queued_at, @started_at, @completed_at, @now, @now, @repository_id,
    CASE WHEN @state <> 'queued' THEN ''
        WHEN EXISTS (SELECT 1 FROM removed_repositories r WHERE r.account_id = @account_id AND r.repository = @repository)
        THEN 'repository_removed'
        ELSE coalesce((SELECT h.held FROM workflow_jobs h WHERE h.account_id = @account_id AND h.repository = @repository
            AND h.label_key = @label_key AND h.state = 'queued' AND h.held <> '' AND h.held IN ('repository_limit', 'refused') LIMIT 1), '') END
WHERE NOT EXISTS (SELECT 1 FROM job_tombstones t WHERE t.job_id = @id)
ON CONFLICT (id) DO NOTHING;

-- name: LockJob :one
SELECT id, account_id, label_key, state, queued_at, coalesce(created_at, queued_at)::timestamptz AS created_at, received_at, approved_at, runner_name,
    repository, repository_id
FROM workflow_jobs WHERE id = @id FOR UPDATE;

-- name: MoveJob :execrows
-- CLAIM-3: a compare-and-set on the state that was read. TEN-7: a job that waited for an approval queues up behind what was queued until then.
UPDATE workflow_jobs SET state = @next, updated_at = @now,
    created_at = CASE WHEN state = 'waiting' AND @next = 'queued' THEN coalesce(created_at, queued_at) ELSE created_at END,
    queued_at = CASE WHEN state = 'waiting' AND @next = 'queued' THEN @now ELSE queued_at END,
    approved_at = CASE WHEN state = 'waiting' AND @next = 'queued' THEN @now ELSE approved_at END, held = CASE
    WHEN @next <> 'queued' THEN ''
    WHEN EXISTS (SELECT 1 FROM removed_repositories r
        WHERE r.account_id = workflow_jobs.account_id AND r.repository = workflow_jobs.repository) THEN 'repository_removed'
    ELSE '' END
WHERE id = @id AND state = @expected;

-- name: IdentifyJob :exec
-- Of a job that an earlier version has inserted.
UPDATE workflow_jobs SET repository_id = @repository_id, repository = @repository WHERE id = @id AND repository_id = 0;

-- name: StartJob :execrows
UPDATE workflow_jobs SET state = 'executing', runner_name = @runner_name, started_at = @started_at, updated_at = @now, held = ''
WHERE id = @id AND state = @expected;

-- name: EndJob :execrows
UPDATE workflow_jobs SET state = @next, conclusion = @conclusion, completed_at = @completed_at,
    runner_name = CASE WHEN @runner_name::text = '' THEN runner_name ELSE @runner_name END,
    started_at = coalesce(sqlc.narg(started_at), started_at), updated_at = @now
WHERE id = @id AND state = @expected;

-- name: InsertTombstone :exec
INSERT INTO job_tombstones (job_id, conclusion, completed_at) VALUES (@job_id, @conclusion, @completed_at)
ON CONFLICT DO NOTHING;

-- name: TombstoneExists :one
SELECT EXISTS (SELECT 1 FROM job_tombstones WHERE job_id = @job_id);

-- name: Job :one
SELECT * FROM workflow_jobs WHERE id = @id;

-- name: OldestInLane :one
-- For a live claim whose own job runs elsewhere: the next job of its lane that its runner can take, unless another replica
-- is taking it. A runner that is registered at a repository takes that one's jobs only. Jobs are locked one after another, in
-- the order of the queue, until there is one.
SELECT j.id, j.queued_at FROM (
    SELECT w.id, w.queued_at, w.repository FROM workflow_jobs w
    WHERE w.label_key = @label_key AND w.account_id = @account_id AND w.state = 'queued' AND w.held = ''
    ORDER BY w.queued_at, w.id LIMIT 64
) c
CROSS JOIN LATERAL (
    SELECT x.id, x.queued_at FROM workflow_jobs x
    WHERE x.id = c.id AND x.state || '' = 'queued' AND x.held || '' = '' FOR UPDATE SKIP LOCKED
) j
WHERE coalesce((SELECT strpos(r.scope, '/') = 0 OR r.scope = c.repository
    FROM runner_registrations r WHERE r.runner_name = @runner_name), true)
ORDER BY c.queued_at, c.id LIMIT 1;

-- name: ParkedLanes :many
SELECT parked, count(*) AS lanes FROM job_lanes GROUP BY parked;
