-- name: RecordDelivery :execrows
INSERT INTO webhook_deliveries (guid, event, received_at) VALUES (@guid, @event, @now)
ON CONFLICT (guid) DO NOTHING;

-- name: EnsureLabelSet :exec
INSERT INTO label_sets (label_key, labels) VALUES (@label_key, @labels) ON CONFLICT DO NOTHING;

-- name: LabelSets :many
SELECT label_key, labels FROM label_sets ORDER BY label_key;

-- name: InsertJob :execrows
-- CLAIM-4: a tombstone bars the way in for a job whose row is gone.
INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha,
    label_key, state, conclusion, runner_name, queued_at, started_at, completed_at, updated_at)
SELECT @id, @account_id, @repository, @run_id, @run_attempt, @name, @workflow, @head_branch, @head_sha,
    @label_key, @state, @conclusion, @runner_name, @queued_at, @started_at, @completed_at, @now
WHERE NOT EXISTS (SELECT 1 FROM job_tombstones t WHERE t.job_id = @id)
ON CONFLICT (id) DO NOTHING;

-- name: LockJob :one
SELECT id, account_id, label_key, state, queued_at, runner_name, repository FROM workflow_jobs WHERE id = @id FOR UPDATE;

-- name: MoveJob :execrows
-- CLAIM-3: a compare-and-set on the state that was read.
UPDATE workflow_jobs SET state = @next, updated_at = @now WHERE id = @id AND state = @expected;

-- name: StartJob :execrows
UPDATE workflow_jobs SET state = 'executing', runner_name = @runner_name, started_at = @started_at, updated_at = @now
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
-- For a live claim whose own job runs elsewhere: the next job of its lane, unless another replica is taking it.
SELECT id, queued_at FROM workflow_jobs
WHERE label_key = @label_key AND account_id = @account_id AND state = 'queued'
ORDER BY queued_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: ParkedLanes :many
SELECT parked, count(*) AS lanes FROM job_lanes GROUP BY parked;
