-- Every statement takes the oldest rows by an index, skips rows that are in use, and is a transaction.
-- ANY (ARRAY(...)) and not IN: a planner that joins may read the whole table for it.

-- name: PruneDeliveries :execrows
DELETE FROM webhook_deliveries WHERE guid = ANY (ARRAY(
    SELECT d.guid FROM webhook_deliveries d WHERE d.received_at < @before
    ORDER BY d.received_at LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: PruneJobs :one
-- CLAIM-4: a job that goes leaves a tombstone for sure, so that no late message revives it.
WITH gone AS (
    DELETE FROM workflow_jobs WHERE id = ANY (ARRAY(
        SELECT w.id FROM workflow_jobs w
        WHERE w.completed_at < sqlc.arg(before)::timestamptz AND (
            SELECT c.pod_uid FROM runner_claims c WHERE c.job_id = w.id AND c.state IN ('claimed', 'minted', 'executing') LIMIT 1) IS NULL
        ORDER BY w.completed_at LIMIT @most FOR UPDATE SKIP LOCKED))
    RETURNING id, conclusion, completed_at
), kept AS (
    INSERT INTO job_tombstones (job_id, conclusion, completed_at)
    SELECT id, conclusion, completed_at FROM gone ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone;

-- name: PruneTombstones :execrows
-- A tombstone is not needed as long as the job's row is there, and goes after it.
DELETE FROM job_tombstones WHERE job_id = ANY (ARRAY(
    SELECT t.job_id FROM job_tombstones t WHERE t.completed_at < @before
    ORDER BY t.completed_at LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: PruneSessions :execrows
DELETE FROM runner_sessions WHERE pod_uid = ANY (ARRAY(
    SELECT s.pod_uid FROM runner_sessions s WHERE s.ended_at < sqlc.arg(before)::timestamptz
    ORDER BY s.ended_at LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: PruneRegistrations :execrows
-- EXCL-6: only what is proven gone, and only when its pod will not be asked about again. A purged account cannot be
-- asked about; its runners were GitHub's to remove a day after they were last seen.
DELETE FROM runner_registrations WHERE runner_name = ANY (ARRAY(
    SELECT r.runner_name FROM runner_registrations r
    WHERE r.state = 'gone' AND NOT r.doubtful AND r.gone_at < sqlc.arg(before)::timestamptz
      AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.pod_uid = r.pod_uid)
    ORDER BY r.gone_at LIMIT @most FOR UPDATE SKIP LOCKED) || ARRAY(
    SELECT r.runner_name FROM runner_registrations r
    WHERE r.state <> 'gone' AND r.created_at < sqlc.arg(before)::timestamptz
      AND NOT EXISTS (SELECT 1 FROM accounts a WHERE a.id = r.account_id)
      AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.pod_uid = r.pod_uid)
    LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: PruneAdoptions :execrows
-- Decided ones are closed at once; this is for those that could not be decided.
DELETE FROM runner_adoptions WHERE runner_name = ANY (ARRAY(
    SELECT a.runner_name FROM runner_adoptions a WHERE a.created_at < @before
    ORDER BY a.created_at LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: PruneLanes :execrows
-- The next queued job makes its lane again.
DELETE FROM job_lanes WHERE ctid = ANY (ARRAY(
    SELECT i.ctid FROM job_lanes i
    WHERE i.parked = 'empty' AND i.running = 0 AND i.head_at < @before
      -- Probes of the queue's own indexes, one for what waits and one for what is held.
      AND (SELECT w.id FROM workflow_jobs w
        WHERE w.label_key = i.label_key AND w.account_id = i.account_id AND w.state = 'queued' AND w.held = ''
        ORDER BY w.queued_at, w.id LIMIT 1) IS NULL
      AND (SELECT h.id FROM workflow_jobs h
        WHERE h.label_key = i.label_key AND h.account_id = i.account_id AND h.state = 'queued' AND h.held <> '' LIMIT 1) IS NULL
      -- Nothing runs: a runner that is not ours has no claim.
      AND (SELECT x.id FROM workflow_jobs x
        WHERE x.label_key = i.label_key AND x.account_id = i.account_id AND x.state = 'executing'
        ORDER BY x.queued_at, x.id LIMIT 1) IS NULL
    ORDER BY i.head_at LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: LeakedLanes :many
-- Lanes in which no job is queued, and which are not parked as empty. A batch that has taken a lane's last job leaves it to the next batch, which never
-- comes once no pool serves the lane (TEN-2). Nothing is locked here: ParkIfEmpty decides.
SELECT i.label_key, i.account_id FROM job_lanes i
WHERE i.parked <> 'empty' AND i.running = 0 AND i.head_at < @before
  AND (SELECT w.id FROM workflow_jobs w
    WHERE w.label_key = i.label_key AND w.account_id = i.account_id AND w.state = 'queued' AND w.held = ''
    ORDER BY w.queued_at, w.id LIMIT 1) IS NULL
  AND (SELECT h.id FROM workflow_jobs h
    WHERE h.label_key = i.label_key AND h.account_id = i.account_id AND h.state = 'queued' AND h.held <> '' LIMIT 1) IS NULL
LIMIT @most;

-- name: PruneLabelSets :execrows
-- Nobody reads them all: where jobs go is decided by lanes. One is kept for as long as a job that says what its labels are.
DELETE FROM label_sets WHERE label_key = ANY (ARRAY(
    SELECT s.label_key FROM label_sets s
    -- The next key at or after this one is a probe of an index. Asked for this very key, the planner expects to find it soon by reading the table
    -- from its beginning; and what is to be pruned is what is not in there.
    WHERE (SELECT l.label_key FROM job_lanes l WHERE l.label_key >= s.label_key ORDER BY l.label_key LIMIT 1) IS DISTINCT FROM s.label_key
      AND (SELECT w.label_key FROM workflow_jobs w WHERE w.label_key >= s.label_key ORDER BY w.label_key LIMIT 1) IS DISTINCT FROM s.label_key
    LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: PruneRepositories :execrows
-- Not of jobs that have not ended: requests about one use the repository's name.
DELETE FROM repositories WHERE name = ANY (ARRAY(
    SELECT r.name FROM repositories r
    WHERE r.seen_at < @before AND NOT EXISTS (
        SELECT 1 FROM workflow_jobs w WHERE w.repository_id = r.repository_id AND w.repository_id <> 0
          AND w.state NOT IN ('completed', 'cancelled', 'stale'))
    ORDER BY r.seen_at LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: PruneEndedInstallations :execrows
DELETE FROM ended_installations WHERE id = ANY (ARRAY(
    SELECT e.id FROM ended_installations e WHERE e.ended_at < @before ORDER BY e.ended_at LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: PruneAudit :execrows
DELETE FROM audit_events WHERE id = ANY (ARRAY(
    SELECT v.id FROM audit_events v WHERE v.at < @before ORDER BY v.at LIMIT @most FOR UPDATE SKIP LOCKED));
