-- name: DeliveryPosition :one
SELECT version, read_until, cursor, top, floor, etag, everything_since FROM delivery_position;

-- name: SaveDeliveryPosition :execrows
UPDATE delivery_position SET version = version + 1, read_until = @read_until, cursor = @cursor, top = @top, floor = @floor,
    etag = @etag, everything_since = @everything_since
WHERE version = @version;

-- name: ReadEverythingSince :exec
-- A reading that is under way starts over: what it has skipped counts now.
UPDATE delivery_position SET version = version + 1, cursor = '', top = NULL, floor = NULL, etag = '',
    everything_since = least(everything_since, @since::timestamptz);

-- name: NoteMissing :execrows
-- RECV-8: what the ledger has is not missing, whatever GitHub saw; what was settled is not asked for again.
WITH listed AS (
    SELECT unnest(@guids::text[]) AS guid, unnest(@delivery_ids::bigint[]) AS delivery_id, unnest(@events::text[]) AS event,
        unnest(@delivered::timestamptz[]) AS delivered_at
)
INSERT INTO delivery_asks (guid, delivery_id, event, delivered_at, next_at)
SELECT l.guid, l.delivery_id, l.event, l.delivered_at, @now FROM listed l
WHERE NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.guid = l.guid)
ORDER BY l.guid
ON CONFLICT (guid) DO UPDATE SET delivery_id = greatest(delivery_asks.delivery_id, excluded.delivery_id)
    WHERE delivery_asks.settled_at IS NULL AND delivery_asks.delivery_id < excluded.delivery_id;

-- name: SettleAsks :exec
UPDATE delivery_asks SET settled_at = @now WHERE guid = ANY (@guids::text[]) AND settled_at IS NULL;

-- name: SettleRedelivered :exec
INSERT INTO delivery_asks (guid, delivery_id, event, delivered_at, next_at, settled_at)
SELECT unnest(@guids::text[]), unnest(@delivery_ids::bigint[]), unnest(@events::text[]), unnest(@delivered::timestamptz[]),
    @now::timestamptz, @now::timestamptz
ON CONFLICT (guid) DO UPDATE SET settled_at = excluded.settled_at WHERE delivery_asks.settled_at IS NULL;

-- name: SettleRecorded :execrows
UPDATE delivery_asks SET settled_at = @now
WHERE settled_at IS NULL AND EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.guid = delivery_asks.guid);

-- name: DueAsks :many
-- Those that were asked for least often first: a few that cannot be delivered do not block the rest. An installation's
-- events take effect in the order in which they are reported, so the oldest of them comes first; of the jobs' the newest,
-- because a job that has ended by then is never queued (CLAIM-4).
SELECT guid, delivery_id, event, delivered_at, attempts FROM delivery_asks
WHERE settled_at IS NULL AND next_at <= @now
ORDER BY (event = 'installation') DESC, attempts,
    CASE WHEN event = 'installation' THEN delivered_at END, delivered_at DESC, delivery_id DESC
LIMIT @most;

-- name: Asked :exec
UPDATE delivery_asks SET attempts = attempts + 1, next_at = @next_at WHERE guid = @guid;

-- name: DropOldAsks :execrows
-- GitHub has forgotten them. The number is of those that were never settled.
WITH dropped AS (DELETE FROM delivery_asks WHERE delivered_at < @before RETURNING settled_at)
SELECT 1 FROM dropped WHERE settled_at IS NULL;

-- name: NoteRepository :exec
INSERT INTO repositories (name, account_id, seen_at, swept_at, repository_id, named_at)
VALUES (@name, @account_id, @now, '-infinity', @repository_id, @named_at)
ON CONFLICT (name) DO UPDATE SET account_id = excluded.account_id, seen_at = excluded.seen_at,
    repository_id = CASE WHEN excluded.repository_id <> 0 AND (repositories.repository_id = 0 OR excluded.named_at >= repositories.named_at)
        THEN excluded.repository_id ELSE repositories.repository_id END,
    named_at = greatest(repositories.named_at, excluded.named_at);

-- name: RepositoryNames :many
-- The names under which a repository was reported, newest first.
SELECT name FROM repositories WHERE repository_id = @repository_id AND repository_id <> 0 ORDER BY named_at DESC, seen_at DESC, name;

-- name: RenameJobs :exec
-- Of jobs that have not ended: what has ended keeps the name that it ran under.
UPDATE workflow_jobs SET repository = @name WHERE workflow_jobs.id = ANY (ARRAY(
    SELECT w.id FROM workflow_jobs w
    WHERE w.repository_id = @repository_id AND w.repository_id <> 0 AND w.account_id = @account_id AND w.repository <> @name
      AND w.state NOT IN ('completed', 'cancelled', 'stale')
    ORDER BY w.id FOR UPDATE));

-- name: RenameRegistrations :exec
UPDATE runner_registrations SET scope = @name
WHERE repository_id = @repository_id AND repository_id <> 0 AND account_id = @account_id AND state <> 'gone' AND scope <> @name;

-- name: RenameRemoved :exec
WITH former AS (
    DELETE FROM removed_repositories d WHERE d.account_id = @account_id AND d.repository = ANY (@former::text[]) RETURNING d.removed_at
)
INSERT INTO removed_repositories (account_id, repository, removed_at)
SELECT @account_id, @name, min(former.removed_at) FROM former HAVING count(*) > 0
ON CONFLICT DO NOTHING;

-- name: ForgetNames :exec
DELETE FROM repositories WHERE repository_id = @repository_id AND name = ANY (@former::text[]);

-- name: AccountsAfter :many
SELECT id FROM accounts WHERE id > @after ORDER BY id LIMIT @most;

-- name: RepositoriesToSweep :many
-- TEN-11: so many of each account, in the order of an index of the account's own. Joined with the accounts, or found by when they were seen, all
-- repositories might be read and sorted.
SELECT r.name, r.resume_status, r.resume_run, a.id AS account_id, a.login, a.kind, a.installation_id::bigint AS installation_id
FROM unnest(@accounts::bigint[]) AS wanted(id)
CROSS JOIN LATERAL (
    SELECT o.id, o.login, o.kind, o.installation_id FROM accounts o
    WHERE o.id = wanted.id AND coalesce(o.installation_id, 0) <> 0 AND NOT o.suspended AND o.deleted_at IS NULL LIMIT 1
) a
CROSS JOIN LATERAL (
    SELECT d.name, d.swept_at, d.resume_status, d.resume_run FROM repositories d
    WHERE d.account_id = a.id AND d.swept_at <= @swept_before AND coalesce(d.seen_at, '-infinity') >= @seen_since
      AND (SELECT g.account_id FROM removed_repositories g WHERE g.account_id = d.account_id AND g.repository = d.name LIMIT 1) IS NULL
    ORDER BY d.swept_at, d.name LIMIT @most
) r
ORDER BY a.id, r.swept_at, r.name;

-- name: Swept :exec
UPDATE repositories SET swept_at = @swept_at, resume_status = '', resume_run = 0 WHERE name = @name;

-- name: SweptPartly :exec
UPDATE repositories SET resume_status = @resume_status, resume_run = @resume_run WHERE name = @name;

-- name: JobStates :many
SELECT id, state FROM workflow_jobs WHERE workflow_jobs.id = ANY (@ids::bigint[])
UNION ALL
SELECT job_id, 'completed' FROM job_tombstones t WHERE t.job_id = ANY (@ids::bigint[])
  AND NOT EXISTS (SELECT 1 FROM workflow_jobs w WHERE w.id = t.job_id);

-- name: JobsToAskAbout :many
-- TEN-11: so many of each account. Those that were asked about longest ago, or never, first: one whose state stays unknown goes to the end of the line.
SELECT j.id, j.state, j.repository, j.repository_id, j.label_key, j.run_id, j.run_attempt, j.name, j.workflow, j.head_branch, j.head_sha,
    j.queued_at, a.id AS account_id, a.login, a.kind, coalesce(a.installation_id, 0)::bigint AS installation_id, a.suspended
FROM unnest(@accounts::bigint[]) AS wanted(id)
CROSS JOIN LATERAL (SELECT o.id, o.login, o.kind, o.installation_id, o.suspended FROM accounts o WHERE o.id = wanted.id LIMIT 1) a
CROSS JOIN LATERAL (
    SELECT w.id, w.state, w.repository, w.repository_id, w.label_key, w.run_id, w.run_attempt, w.name, w.workflow, w.head_branch, w.head_sha,
        w.queued_at, w.asked_at
    FROM workflow_jobs w
    WHERE w.account_id = a.id AND ('' || w.state) IN ('queued', 'waiting') AND coalesce(w.asked_at, w.queued_at) <= @before
    ORDER BY coalesce(w.asked_at, w.queued_at), w.id LIMIT @most
) j
ORDER BY a.id, coalesce(j.asked_at, j.queued_at), j.id;

-- name: AskedAbout :exec
UPDATE workflow_jobs SET asked_at = @now WHERE id = ANY (@ids::bigint[]) AND state || '' IN ('queued', 'waiting');

-- name: ConfirmWaiting :exec
UPDATE workflow_jobs SET confirmed_at = @now WHERE id = @id AND state || '' = 'waiting';

-- name: ExpireJobs :many
-- RECV-7: nothing has moved the job for a day, and GitHub could not say what has become of it.
WITH due AS (
    SELECT w.id FROM workflow_jobs w
    WHERE w.state IN ('queued', 'waiting') AND w.updated_at <= @before
      AND (w.state = 'queued' OR coalesce(w.confirmed_at, w.updated_at) <= @before)
      AND (w.asked_at > w.updated_at OR w.updated_at <= @unasked_before)
    ORDER BY w.updated_at LIMIT @most FOR UPDATE SKIP LOCKED
), expired AS (
    UPDATE workflow_jobs j SET state = 'stale', conclusion = 'stale', completed_at = @now, updated_at = @now, held = ''
    FROM due WHERE j.id = due.id AND j.state IN ('queued', 'waiting')
    RETURNING j.id, j.label_key, j.account_id
), buried AS (
    INSERT INTO job_tombstones (job_id, conclusion, completed_at) SELECT expired.id, 'stale', @now FROM expired
    ON CONFLICT DO NOTHING
)
SELECT expired.id, expired.label_key, expired.account_id FROM expired;

-- name: SessionsLost :exec
UPDATE runner_sessions SET lost_at = coalesce(lost_at, @now)
WHERE pod_uid = ANY (@pod_uids::text[]) AND job_started_at IS NOT NULL AND job_ended_at IS NULL AND ended_at IS NULL;

-- name: JobsLostWithTheirPods :many
-- A job that GitHub calls failed on the very runner whose pod was lost before that, while it ran. Pods that were lost are few: for each
-- of them its job and its account are looked up.
SELECT j.id, j.run_id, j.run_attempt, j.name, j.repository, j.runner_name, s.pod_name, s.lost_at,
    a.id AS account_id, a.login, a.kind, a.installation_id::bigint AS installation_id
FROM runner_sessions s
CROSS JOIN LATERAL (
    SELECT w.id, w.run_id, w.run_attempt, w.name, w.repository, w.runner_name, w.account_id, w.rerun_at, w.completed_at FROM workflow_jobs w
    WHERE w.id = s.executed_job_id AND s.lost_at <= w.completed_at AND s.runner_name = w.runner_name
      AND w.state || '' = 'completed' AND w.conclusion = 'failure' AND w.rerun || '' = '' AND (w.rerun_at IS NULL OR w.rerun_at <= @now) LIMIT 1
) j
CROSS JOIN LATERAL (
    SELECT o.id, o.login, o.kind, o.installation_id FROM accounts o
    WHERE o.id = j.account_id AND coalesce(o.installation_id, 0) <> 0 AND NOT o.suspended LIMIT 1
) a
WHERE s.lost_at IS NOT NULL AND s.lost_at > @since
ORDER BY coalesce(j.rerun_at, j.completed_at), j.id LIMIT @most;

-- name: RerunsOfRun :one
-- Jobs that were asked for together share their time. A job whose pod was lost and that still runs here has ended at GitHub,
-- if its run has.
SELECT (SELECT count(DISTINCT o.rerun_at) FROM workflow_jobs o
        WHERE o.run_id = @run_id AND o.rerun = 'asked' AND o.run_attempt >= @attempt)::bigint AS asked,
    EXISTS (SELECT 1 FROM runner_sessions s JOIN workflow_jobs j ON j.id = s.executed_job_id
        WHERE s.lost_at > sqlc.arg(since)::timestamptz AND j.run_id = @run_id AND j.state = 'executing'
          AND s.runner_name = j.runner_name)::boolean AS awaited;

-- name: RerunLater :exec
UPDATE workflow_jobs SET rerun_at = @at WHERE id = @id AND rerun = '';

-- name: BookRerun :one
-- Written before GitHub is asked, so that no job is asked for twice, and counted over all attempts of its lineage.
UPDATE workflow_jobs j SET rerun_at = @now, rerun = CASE WHEN (
        SELECT count(*) FROM workflow_jobs o WHERE o.run_id = j.run_id AND o.name = j.name AND o.rerun = 'asked'
    ) < @most::bigint THEN 'asked' ELSE 'limit' END
WHERE j.id = @id AND j.rerun = ''
RETURNING j.rerun;

-- name: UnbookRerun :exec
UPDATE workflow_jobs SET rerun = @rerun, rerun_at = @at WHERE id = @id AND rerun IN ('', 'asked');
