-- name: AccountByID :one
SELECT id, login, kind, installation_id, suspended, created_at, updated_at, paused, paused_reason, deleted_at, version, installation_changed_at, installation_missing_at FROM accounts WHERE id = $1

-- name: AccountIsKnown :one
SELECT EXISTS (SELECT 1 FROM accounts WHERE id = $1 AND login = $2
    AND installation_id = $3::bigint)

-- name: AccountPage :many
SELECT id, login, kind, installation_id, suspended, created_at, updated_at, paused, paused_reason, deleted_at, version, installation_changed_at, installation_missing_at FROM accounts
WHERE (lower(login), id) > (lower($1::text), $2::bigint) AND ($3::boolean OR deleted_at IS NULL)
ORDER BY lower(login), id LIMIT $4

-- name: AccountsByLogin :many
SELECT id, deleted_at FROM accounts WHERE lower(login) = lower($1::text) ORDER BY deleted_at IS NOT NULL, id

-- name: AcknowledgeByTermination :one
UPDATE runner_claims SET acknowledged_at = $1, lease_until = NULL
WHERE pod_uid = $2 AND state IN ('minted', 'executing') AND acknowledged_at IS NULL
RETURNING account_id

-- name: AcknowledgeClaim :execrows
UPDATE runner_claims SET acknowledged_at = coalesce(acknowledged_at, $1), lease_until = NULL
WHERE pod_uid = $2 AND generation = $3 AND state IN ('minted', 'executing')

-- name: AdoptClaim :execrows
INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, milli_cpu,
    memory_mb, label_key, job_id, runner_name, claimed_at, minted_at, acknowledged_at, executing_at)
VALUES ($1, $2, $3, $4, 'executing', $5, $6, $7, $8,
    $9, $10, $11, $12, $13, $13, $13, $13)
ON CONFLICT (pod_uid) DO UPDATE SET state = 'executing', generation = runner_claims.generation + 1,
    account_id = excluded.account_id, platform = excluded.platform, milli_cpu = excluded.milli_cpu,
    memory_mb = excluded.memory_mb, label_key = excluded.label_key, job_id = excluded.job_id,
    runner_name = excluded.runner_name, acknowledged_at = excluded.acknowledged_at,
    executing_at = excluded.executing_at, ended_at = NULL, lease_until = NULL, proof = ''
WHERE runner_claims.state IN ('spent', 'retired')

-- name: AdvanceLanes :exec
UPDATE job_lanes l SET running = l.running + v.claimed,
    head_at = coalesce((
        SELECT w.queued_at FROM workflow_jobs w
        WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
        ORDER BY w.queued_at, w.id LIMIT 1), l.head_at)
FROM (SELECT unnest($1::text[]) AS label_key, unnest($2::bigint[]) AS account_id,
    unnest($3::bigint[]) AS claimed) v
WHERE l.label_key = v.label_key AND l.account_id = v.account_id

-- name: AnyRowsOf :many
SELECT pod_uid FROM runner_claims WHERE pod_uid = ANY ($1::text[])

-- name: Asked :exec
UPDATE delivery_asks SET attempts = attempts + 1, next_at = $1 WHERE guid = $2

-- name: AskedAbout :exec
UPDATE workflow_jobs SET asked_at = $1 WHERE id = ANY ($2::bigint[]) AND state IN ('queued', 'waiting')

-- name: AuditPage :many
SELECT id, at, actor, credential, action, account_id, subject, before, after, reason FROM audit_events WHERE id < $1 ORDER BY id DESC LIMIT $2

-- name: AuditPageOfAccount :many
SELECT id, at, actor, credential, action, account_id, subject, before, after, reason FROM audit_events WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3

-- name: AuditPageOfSubject :many
SELECT id, at, actor, credential, action, account_id, subject, before, after, reason FROM audit_events WHERE lower(subject) = lower($1::text) AND id < $2 ORDER BY id DESC LIMIT $3

-- name: BeatEpoch :execrows
UPDATE ledger_epoch SET epoch = epoch + 1, beaten_at = now()
WHERE lineage = $1 AND epoch >= $2 AND hold_until IS NULL
  AND beaten_at <= now() - make_interval(secs => $3::float8)

-- name: BeginHold :execrows
UPDATE ledger_epoch SET hold_until = now() + make_interval(secs => $1::float8), over_lineage = $2, over_epoch = $3,
    reason = $4, lost_since = $5, rebuilt_at = NULL, rebuilding_until = NULL, doubts = 0
WHERE lineage = $6 AND epoch = $7
  AND (hold_until IS NULL OR over_lineage <> $2 OR over_epoch < $3)

-- name: BeginRebuild :execrows
UPDATE ledger_epoch SET rebuilding_until = now() + make_interval(secs => $1::float8)
WHERE hold_until IS NOT NULL AND (rebuilding_until IS NULL OR rebuilding_until <= now())
  AND (rebuilt_at IS NULL OR rebuilt_at <= now() - make_interval(secs => $2::float8))

-- name: BindClaim :execrows
UPDATE runner_claims SET job_id = $1 WHERE pod_uid = $2

-- name: BookRerun :one
UPDATE workflow_jobs j SET rerun_at = $1, rerun = CASE WHEN (
        SELECT count(*) FROM workflow_jobs o WHERE o.run_id = j.run_id AND o.name = j.name AND o.rerun = 'asked'
    ) < $2::bigint THEN 'asked' ELSE 'limit' END
WHERE j.id = $3 AND j.rerun = ''
RETURNING j.rerun

-- name: BuryAllJobsOfAccount :exec
INSERT INTO job_tombstones (job_id, conclusion, completed_at)
SELECT w.id, w.conclusion, coalesce(w.completed_at, $1) AS completed_at FROM workflow_jobs w WHERE w.account_id = $2
ON CONFLICT DO NOTHING

-- name: BuryJobsOfAccount :exec
WITH ended AS (
    UPDATE workflow_jobs SET state = 'stale', conclusion = 'account_deleted', completed_at = $1, updated_at = $1
    WHERE account_id = $2 AND state IN ('queued', 'waiting')
    RETURNING id
)
INSERT INTO job_tombstones (job_id, conclusion, completed_at)
SELECT ended.id, 'account_deleted', $1 FROM ended ON CONFLICT DO NOTHING

-- name: CandidateLanesFIFO :many
SELECT l.label_key, l.account_id, l.version, l.head_at, l.running,
    a.login, a.kind, a.installation_id, (a.suspended OR a.paused OR a.deleted_at IS NOT NULL)::boolean AS suspended
FROM unnest($1::text[]) AS k (label_key)
CROSS JOIN LATERAL (
    SELECT label_key, account_id, parked, version, head_at, running FROM job_lanes
    WHERE job_lanes.label_key = k.label_key AND parked = '' AND job_lanes.account_id <> ALL ($2::bigint[])
    ORDER BY head_at, job_lanes.account_id LIMIT $3
) l
JOIN accounts a ON a.id = l.account_id
ORDER BY l.head_at, l.account_id, l.label_key LIMIT $3

-- name: CandidateLanesFair :many
SELECT l.label_key, l.account_id, l.version, l.head_at, l.running,
    a.login, a.kind, a.installation_id, (a.suspended OR a.paused OR a.deleted_at IS NOT NULL)::boolean AS suspended
FROM unnest($1::text[]) AS k (label_key)
CROSS JOIN LATERAL (
    SELECT label_key, account_id, parked, version, head_at, running FROM job_lanes
    WHERE job_lanes.label_key = k.label_key AND parked = '' AND job_lanes.account_id <> ALL ($2::bigint[])
    ORDER BY running, head_at, job_lanes.account_id LIMIT $3
) l
JOIN accounts a ON a.id = l.account_id
ORDER BY l.running, l.head_at, l.account_id, l.label_key LIMIT $3

-- name: ChargeLane :exec
INSERT INTO job_lanes (label_key, account_id, head_at, running, parked)
VALUES ($1, $2, $3, 1, 'empty')
ON CONFLICT (label_key, account_id) DO UPDATE SET running = job_lanes.running + 1

-- name: ClaimJobs :execrows
UPDATE workflow_jobs SET state = 'claimed', updated_at = $1
WHERE id = ANY ($2::bigint[]) AND state = 'queued'

-- name: ClaimStates :many
SELECT c.pod_uid, c.state, c.proof, coalesce(a.login, '')::text AS login
FROM runner_claims c LEFT JOIN accounts a ON a.id = c.account_id
WHERE c.pod_uid = ANY ($1::text[])

-- name: Claims :many
SELECT c.pod_uid, c.namespace, c.pod_name, c.pool, c.state, c.generation, c.lease_until, c.account_id, c.platform, c.milli_cpu, c.memory_mb, c.label_key, c.job_id, c.runner_name, c.claimed_at, c.minted_at, c.acknowledged_at, c.executing_at, c.ended_at, c.proof, c.missing_since, c.look_at, c.sequence, coalesce(a.login, '')::text AS login, coalesce(a.kind, '')::text AS kind, a.installation_id,
    coalesce(j.repository, '')::text AS repository, (coalesce(l.repository_jobs, 0) > 0)::boolean AS capped
FROM runner_claims c
LEFT JOIN accounts a ON a.id = c.account_id
LEFT JOIN workflow_jobs j ON j.id = c.job_id
LEFT JOIN account_limits l ON l.account_id = c.account_id AND l.platform = c.platform
WHERE c.pod_uid = ANY ($1::text[])

-- name: CloseAdoption :exec
DELETE FROM runner_adoptions WHERE runner_name = $1

-- name: CloseStraySession :execrows
UPDATE runner_sessions s SET ended_at = coalesce(s.job_ended_at, $1::timestamptz), job_ended_at = CASE
    WHEN s.job_started_at IS NULL THEN s.job_ended_at ELSE coalesce(s.job_ended_at, $1::timestamptz) END
WHERE s.pod_uid = $2 AND s.ended_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.pod_uid = s.pod_uid)

-- name: ConfirmWaiting :exec
UPDATE workflow_jobs SET confirmed_at = $1 WHERE id = $2 AND state = 'waiting'

-- name: DatabaseTime :one
SELECT clock_timestamp()::timestamptz AS now

-- name: DeleteLanes :exec
DELETE FROM job_lanes WHERE account_id = $1

-- name: DeleteLimits :exec
DELETE FROM account_limits WHERE account_id = $1

-- name: DeliveryPosition :one
SELECT version, read_until, cursor, top, floor, etag, everything_since FROM delivery_position

-- name: DisownClaims :exec
UPDATE runner_claims SET account_id = NULL WHERE account_id = $1 AND state IN ('spent', 'retired')

-- name: DoubtRegistrations :exec
UPDATE runner_registrations SET state = 'intended', doubtful = false WHERE runner_name = ANY (ARRAY(
    SELECT r.runner_name FROM runner_registrations r
    WHERE r.doubtful AND r.gone_at <= $1
      AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.pod_uid = r.pod_uid)
    ORDER BY r.gone_at LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: DropClaim :execrows
DELETE FROM runner_claims WHERE pod_uid = $1 AND generation = $2 AND state = 'claimed'

-- name: DropOldAsks :execrows
WITH dropped AS (DELETE FROM delivery_asks WHERE delivered_at < $1 RETURNING settled_at)
SELECT 1 FROM dropped WHERE settled_at IS NULL

-- name: DueAdoptions :many
UPDATE runner_adoptions SET next_at = $1, attempts = runner_adoptions.attempts + 1
WHERE runner_adoptions.runner_name IN (
    SELECT due.runner_name FROM runner_adoptions due
    WHERE due.next_at <= $2 ORDER BY due.next_at LIMIT $3 FOR UPDATE SKIP LOCKED)
RETURNING runner_name, runner_id, pod_uid, account_id, job_id, scope, created_at, next_at, attempts

-- name: DueAsks :many
SELECT guid, delivery_id, event, delivered_at, attempts FROM delivery_asks
WHERE settled_at IS NULL AND next_at <= $1
ORDER BY (event = 'installation') DESC, attempts,
    CASE WHEN event = 'installation' THEN delivered_at END, delivered_at DESC, delivery_id DESC
LIMIT $2

-- name: EndHold :execrows
UPDATE ledger_epoch SET epoch = greatest(epoch, over_epoch) + 1000, beaten_at = now(), hold_until = NULL, reason = '',
    lineage = CASE WHEN over_lineage = '' THEN lineage ELSE over_lineage END
WHERE hold_until <= now() AND rebuilt_at IS NOT NULL AND over_lineage = $1 AND over_epoch = $2

-- name: EndInstallation :exec
INSERT INTO ended_installations (id, ended_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING

-- name: EndJob :execrows
UPDATE workflow_jobs SET state = $1, conclusion = $2, completed_at = $3,
    runner_name = CASE WHEN $4::text = '' THEN runner_name ELSE $4 END,
    started_at = coalesce($5, started_at), updated_at = $6
WHERE id = $7 AND state = $8

-- name: EndLease :execrows
UPDATE runner_claims SET lease_until = NULL WHERE pod_uid = $1 AND generation = $2

-- name: EndRebuild :exec
UPDATE ledger_epoch SET rebuilding_until = NULL, rebuilt_at = coalesce($1, rebuilt_at),
    doubts = CASE WHEN $1::timestamptz IS NULL THEN doubts ELSE $2::bigint END
WHERE hold_until IS NOT NULL

-- name: EndedPods :many
SELECT pod_uid, namespace, pod_name, pool FROM runner_claims
WHERE state IN ('spent', 'retired') AND pod_uid <> ALL ($1::text[])
ORDER BY ended_at LIMIT $2

-- name: EnsureAccount :exec
INSERT INTO accounts (id, login, kind, installation_id, created_at, updated_at, installation_changed_at)
VALUES ($1, $2, $3, $4, $5, $5, $5)
ON CONFLICT (id) DO UPDATE SET login = excluded.login, installation_id = excluded.installation_id,
    updated_at = excluded.updated_at, deleted_at = NULL, installation_missing_at = NULL,
    -- A new installation begins unsuspended; what the former one was counts no longer.
    suspended = accounts.suspended AND accounts.installation_id IS NOT DISTINCT FROM excluded.installation_id,
    installation_changed_at = CASE WHEN accounts.installation_id IS DISTINCT FROM excluded.installation_id
        THEN excluded.installation_changed_at ELSE accounts.installation_changed_at END
WHERE accounts.installation_id IS DISTINCT FROM excluded.installation_id OR accounts.login <> excluded.login

-- name: EnsureLabelSet :exec
INSERT INTO label_sets (label_key, labels) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: EnsureLimits :exec
INSERT INTO account_limits (account_id, platform, milli_cpu, memory_mb, jobs, repository_jobs)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (account_id, platform) DO NOTHING

-- name: EnsureOrphan :exec
INSERT INTO accounts (id, login, kind, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
ON CONFLICT (id) DO NOTHING

-- name: EnsureRegistration :exec
INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, generation, runner_id, state, created_at)
VALUES ($1, $2, $3, $4, $5, $6, 'alive', $7)
ON CONFLICT (runner_name) DO UPDATE SET state = 'alive', runner_id = excluded.runner_id, gone_at = NULL

-- name: EpochCopied :exec
UPDATE ledger_epoch SET copied = true WHERE lineage = $1 AND NOT copied

-- name: ExecuteClaim :execrows
UPDATE runner_claims SET state = 'executing', job_id = $1, executing_at = coalesce(executing_at, $2),
    acknowledged_at = coalesce(acknowledged_at, $2), lease_until = NULL
WHERE pod_uid = $3 AND state = $4

-- name: ExpireJobs :many
WITH due AS (
    SELECT w.id FROM workflow_jobs w
    WHERE w.state IN ('queued', 'waiting') AND w.updated_at <= $1
      AND (w.state = 'queued' OR coalesce(w.confirmed_at, w.updated_at) <= $1)
      AND (w.asked_at > w.updated_at OR w.updated_at <= $2)
    ORDER BY w.updated_at LIMIT $3 FOR UPDATE SKIP LOCKED
), expired AS (
    UPDATE workflow_jobs j SET state = 'stale', conclusion = 'stale', completed_at = $4, updated_at = $4, held = ''
    FROM due WHERE j.id = due.id AND j.state IN ('queued', 'waiting')
    RETURNING j.id
), buried AS (
    INSERT INTO job_tombstones (job_id, conclusion, completed_at) SELECT expired.id, 'stale', $4 FROM expired
    ON CONFLICT DO NOTHING
)
SELECT expired.id FROM expired

-- name: FeedLane :exec
INSERT INTO job_lanes (label_key, account_id, version, head_at) VALUES ($1, $2, 1, $3)
ON CONFLICT (label_key, account_id) DO UPDATE SET parked = '', version = job_lanes.version + 1,
    head_at = CASE WHEN job_lanes.parked IN ('empty', 'held') THEN excluded.head_at
        ELSE least(job_lanes.head_at, excluded.head_at) END

-- name: ForgetDeletedAccounts :execrows
DELETE FROM accounts WHERE accounts.id IN (
    SELECT a.id FROM accounts a WHERE a.deleted_at < $1::timestamptz
      AND NOT EXISTS (SELECT 1 FROM workflow_jobs w WHERE w.account_id = a.id)
      AND NOT EXISTS (SELECT 1 FROM runner_sessions s WHERE s.account_id = a.id)
      AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.account_id = a.id)
    LIMIT $2)

-- name: ForgetPod :execrows
DELETE FROM runner_claims WHERE pod_uid = $1 AND state IN ('spent', 'retired')

-- name: ForgetSightings :exec
DELETE FROM pod_sightings WHERE pod_uid <> ALL ($1::text[])

-- name: FreeRoom :exec
WITH freed AS (
    SELECT f.label_key FROM job_lanes f WHERE f.account_id = $2
    ORDER BY f.label_key FOR UPDATE -- in one order, so that two claims that end cannot wait for each other
)
UPDATE job_lanes l SET parked = CASE WHEN l.parked = 'limit' THEN '' ELSE l.parked END, version = l.version + 1,
    running = greatest(0, l.running - CASE WHEN l.label_key = $1::text THEN 1 ELSE 0 END) -- a hint: it refuses nothing
FROM freed WHERE l.account_id = $2 AND l.label_key = freed.label_key

-- name: HeldAccounts :many
WITH RECURSIVE found AS (
    (SELECT w.account_id FROM workflow_jobs w
     WHERE w.state = 'queued' AND w.held <> '' AND w.account_id > $2 ORDER BY w.account_id LIMIT 1)
    UNION ALL
    SELECT n.account_id FROM found f CROSS JOIN LATERAL (
        SELECT w.account_id FROM workflow_jobs w
        WHERE w.state = 'queued' AND w.held <> '' AND w.account_id > f.account_id
        ORDER BY w.account_id LIMIT 1) n
)
SELECT found.account_id::bigint AS account_id FROM found LIMIT $1

-- name: HeldRepositoriesOfAccount :many
WITH RECURSIVE found AS (
    (SELECT w.repository FROM workflow_jobs w
     WHERE w.account_id = $2 AND w.state = 'queued' AND w.held <> '' AND w.repository > $3
     ORDER BY w.repository LIMIT 1)
    UNION ALL
    SELECT n.repository FROM found f CROSS JOIN LATERAL (
        SELECT w.repository FROM workflow_jobs w
        WHERE w.account_id = $2 AND w.state = 'queued' AND w.held <> '' AND w.repository > f.repository
        ORDER BY w.repository LIMIT 1) n
)
SELECT found.repository::text AS repository FROM found LIMIT $1

-- name: HoldRemoved :exec
UPDATE workflow_jobs SET held = 'repository_removed', updated_at = $1
WHERE account_id = $2 AND repository = $3 AND state = 'queued'

-- name: InsertAudit :exec
INSERT INTO audit_events (at, actor, credential, action, account_id, subject, before, after, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: InsertClaims :many
WITH wanted AS (
    SELECT unnest($1::text[]) AS uid, unnest($2::text[]) AS namespace,
        unnest($3::text[]) AS pod_name, unnest($4::bigint[]) AS generation,
        unnest($5::bigint[]) AS account_id, unnest($6::text[]) AS label_key,
        unnest($7::bigint[]) AS job_id, unnest($8::bigint[]) AS sequence, unnest($9::text[]) AS runner_name,
        unnest($10::text[]) AS scope
    WHERE require_epoch($11::text, $12::bigint) -- CLAIM-17
), won AS (
    INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, lease_until, account_id,
        platform, milli_cpu, memory_mb, label_key, job_id, runner_name, claimed_at, sequence)
    SELECT w.uid, w.namespace, w.pod_name, $13, 'claimed', w.generation, $14, w.account_id,
        $15, $16, $17, w.label_key, w.job_id, w.runner_name, $18, w.sequence
    FROM wanted w ORDER BY w.uid
    ON CONFLICT DO NOTHING
    RETURNING pod_uid, runner_name, account_id, generation
), intended AS (
    INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, generation, state, created_at)
    SELECT won.runner_name, won.pod_uid, won.account_id, wanted.scope, won.generation, 'intended', $18
    FROM won JOIN wanted ON wanted.uid = won.pod_uid
)
SELECT won.pod_uid FROM won

-- name: InsertFound :execrows
INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, milli_cpu,
    memory_mb, runner_name, claimed_at, minted_at, acknowledged_at)
VALUES ($1, $2, $3, $4, 'minted', $5, $6, $7, $8,
    $9, $10, $11, $11, $12)
ON CONFLICT (pod_uid) DO NOTHING

-- name: InsertJob :execrows
INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha,
    label_key, state, conclusion, runner_name, queued_at, started_at, completed_at, updated_at, held)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9,
    $10, $11, $12, $13, $14, $15, $16, $17,
    CASE WHEN $11 <> 'queued' THEN ''
        WHEN EXISTS (SELECT 1 FROM removed_repositories r WHERE r.account_id = $2 AND r.repository = $3)
        THEN 'repository_removed'
        WHEN EXISTS (SELECT 1 FROM workflow_jobs h WHERE h.account_id = $2 AND h.repository = $3
            AND h.label_key = $10 AND h.state = 'queued' AND h.held <> '')
        THEN 'repository_limit' ELSE '' END
WHERE NOT EXISTS (SELECT 1 FROM job_tombstones t WHERE t.job_id = $1)
ON CONFLICT (id) DO NOTHING

-- name: InsertTombstone :exec
INSERT INTO job_tombstones (job_id, conclusion, completed_at) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING

-- name: InstallationEnded :one
SELECT EXISTS (SELECT 1 FROM ended_installations WHERE id = $1)

-- name: InstalledAccounts :many
SELECT id, login, kind, installation_id, suspended, created_at, updated_at, paused, paused_reason, deleted_at, version, installation_changed_at, installation_missing_at FROM accounts WHERE installation_id IS NOT NULL ORDER BY id

-- name: IntendRegistration :execrows

WITH held AS (
    UPDATE runner_claims SET runner_name = $1
    WHERE runner_claims.pod_uid = $5 AND runner_claims.generation = $3
      AND runner_claims.state IN ('claimed', 'minted') AND require_epoch($6::text, $7::bigint) -- CLAIM-17
    RETURNING pod_uid, account_id
)
INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, generation, state, created_at)
SELECT $1, held.pod_uid, held.account_id, $2::text, $3, 'intended', $4 FROM held

-- name: Job :one
SELECT id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, conclusion, runner_name, queued_at, started_at, completed_at, updated_at, look_at, asked_at, confirmed_at, rerun, rerun_at, held FROM workflow_jobs WHERE id = $1

-- name: JobOfRunner :one
SELECT id FROM workflow_jobs WHERE runner_name = $1 AND state = 'executing' ORDER BY id LIMIT 1

-- name: JobStates :many
SELECT id, state FROM workflow_jobs WHERE workflow_jobs.id = ANY ($1::bigint[])
UNION ALL
SELECT job_id, 'completed' FROM job_tombstones t WHERE t.job_id = ANY ($1::bigint[])
  AND NOT EXISTS (SELECT 1 FROM workflow_jobs w WHERE w.id = t.job_id)

-- name: JobsLostWithTheirPods :many
SELECT j.id, j.run_id, j.run_attempt, j.name, j.repository, j.runner_name, s.pod_name, s.lost_at,
    a.id AS account_id, a.login, a.kind, a.installation_id::bigint AS installation_id
FROM runner_sessions s
JOIN workflow_jobs j ON j.id = s.executed_job_id
JOIN accounts a ON a.id = j.account_id
WHERE s.lost_at IS NOT NULL AND s.lost_at > $1 AND s.lost_at <= j.completed_at AND s.runner_name = j.runner_name
  AND j.state = 'completed' AND j.conclusion = 'failure' AND j.rerun = '' AND (j.rerun_at IS NULL OR j.rerun_at <= $2)
  AND a.installation_id IS NOT NULL AND NOT a.suspended
ORDER BY coalesce(j.rerun_at, j.completed_at), j.id LIMIT $3

-- name: JobsToAskAbout :many
SELECT j.id, j.state, j.repository, j.label_key, j.run_id, j.run_attempt, j.name, j.workflow, j.head_branch, j.head_sha,
    j.queued_at, a.id AS account_id, a.login, a.kind, coalesce(a.installation_id, 0)::bigint AS installation_id, a.suspended
FROM workflow_jobs j JOIN accounts a ON a.id = j.account_id
WHERE j.state IN ('queued', 'waiting') AND coalesce(j.asked_at, j.queued_at) <= $1
  AND j.account_id <> ALL ($2::bigint[])
ORDER BY coalesce(j.asked_at, j.queued_at), j.id LIMIT $3

-- name: LabelSets :many
SELECT label_key, labels FROM label_sets ORDER BY label_key

-- name: LimitsOf :many
SELECT account_id, platform, milli_cpu, memory_mb, jobs, repository_jobs FROM account_limits WHERE account_id = ANY ($1::bigint[]) ORDER BY account_id, platform

-- name: LimitsOfAccounts :many
SELECT account_id, platform, milli_cpu, memory_mb, jobs, repository_jobs FROM account_limits
WHERE account_id = ANY ($1::bigint[])

-- name: LiveClaimOfJob :one
SELECT pod_uid, namespace, pod_name, pool, state, generation, lease_until, account_id, platform, milli_cpu, memory_mb, label_key, job_id, runner_name, claimed_at, minted_at, acknowledged_at, executing_at, ended_at, proof, missing_since, look_at, sequence FROM runner_claims WHERE job_id = $1::bigint AND state IN ('claimed', 'minted', 'executing') FOR UPDATE

-- name: LiveClaimsOfAccount :one
SELECT count(*) FROM runner_claims WHERE account_id = $1 AND state IN ('claimed', 'minted', 'executing')

-- name: LiveUsage :many
SELECT a.id, (a.suspended OR a.paused OR a.installation_id IS NULL OR a.deleted_at IS NOT NULL)::boolean AS suspended,
    u.jobs, u.milli_cpu, u.memory_mb
FROM accounts a
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, coalesce(sum(c.milli_cpu), 0)::bigint AS milli_cpu, coalesce(sum(c.memory_mb), 0)::bigint AS memory_mb
    FROM runner_claims c
    WHERE c.account_id = a.id AND c.platform = $1 AND c.state IN ('claimed', 'minted', 'executing')
) u
WHERE a.id = ANY ($2::bigint[])

-- name: LockAccount :one
SELECT id, login, kind, installation_id, suspended, created_at, updated_at, paused, paused_reason, deleted_at, version, installation_changed_at, installation_missing_at FROM accounts WHERE id = $1 FOR NO KEY UPDATE

-- name: LockAccountLimits :many
SELECT platform, milli_cpu, memory_mb, jobs, repository_jobs FROM account_limits
WHERE account_id = $1 ORDER BY platform FOR UPDATE

-- name: LockClaim :one
SELECT pod_uid, namespace, pod_name, pool, state, generation, lease_until, account_id, platform, milli_cpu, memory_mb, label_key, job_id, runner_name, claimed_at, minted_at, acknowledged_at, executing_at, ended_at, proof, missing_since, look_at, sequence FROM runner_claims WHERE pod_uid = $1 FOR UPDATE

-- name: LockClaimsOfEvent :many
SELECT pod_uid, namespace, pod_name, pool, state, generation, lease_until, account_id, platform, milli_cpu, memory_mb, label_key, job_id, runner_name, claimed_at, minted_at, acknowledged_at, executing_at, ended_at, proof, missing_since, look_at, sequence FROM runner_claims
WHERE (runner_name = $1 AND runner_name <> '')
   OR (job_id = $2::bigint AND state IN ('claimed', 'minted', 'executing'))
ORDER BY pod_uid FOR UPDATE

-- name: LockInstallationLimits :many
SELECT l.account_id FROM account_limits l
WHERE l.account_id = $1 OR l.account_id IN (SELECT a.id FROM accounts a WHERE a.installation_id = $2)
ORDER BY l.account_id, l.platform FOR UPDATE OF l

-- name: LockJob :one
SELECT id, account_id, label_key, state, queued_at, runner_name, repository FROM workflow_jobs WHERE id = $1 FOR UPDATE

-- name: LockLanes :exec
SELECT 1 FROM job_lanes l
JOIN (SELECT unnest($1::text[]) AS label_key, unnest($2::bigint[]) AS account_id) v
    ON l.label_key = v.label_key AND l.account_id = v.account_id
ORDER BY l.account_id, l.label_key FOR UPDATE OF l

-- name: LockLimits :many
SELECT account_id, milli_cpu, memory_mb, jobs, repository_jobs FROM account_limits
WHERE platform = $1 AND account_id = ANY ($2::bigint[])
ORDER BY account_id FOR UPDATE

-- name: LookAtClaimAgain :exec
UPDATE runner_claims SET look_at = $1 WHERE pod_uid = $2 AND generation = $3

-- name: LookAtJobAgain :exec
UPDATE workflow_jobs SET look_at = $1 WHERE id = $2

-- name: LookIntoLanes :many
SELECT l.label_key::text AS label_key, l.account_id::bigint AS account_id, c.jobs, g.held, o.ids, o.queued_at, o.repositories
FROM (SELECT unnest($1::text[]) AS label_key, unnest($2::bigint[]) AS account_id,
    unnest($3::bigint[]) AS counted, unnest($4::bigint[]) AS aged, unnest($5::boolean[]) AS named) l
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs FROM (
        SELECT 1 FROM workflow_jobs w
        WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
        LIMIT l.counted) counted
) c
CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM (
        SELECT 1 FROM workflow_jobs w
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

-- name: MarkAccountDeleted :exec
UPDATE accounts SET deleted_at = $1, version = version + 1, updated_at = $1 WHERE id = $2

-- name: MissInstallation :exec
UPDATE accounts SET installation_missing_at = $1 WHERE id = $2

-- name: MoveJob :execrows
UPDATE workflow_jobs SET state = $1, updated_at = $2, held = CASE
    WHEN $1 <> 'queued' THEN ''
    WHEN EXISTS (SELECT 1 FROM removed_repositories r
        WHERE r.account_id = workflow_jobs.account_id AND r.repository = workflow_jobs.repository) THEN 'repository_removed'
    ELSE '' END
WHERE id = $3 AND state = $4

-- name: NoteMissing :execrows
WITH listed AS (
    SELECT unnest($2::text[]) AS guid, unnest($3::bigint[]) AS delivery_id, unnest($4::text[]) AS event,
        unnest($5::timestamptz[]) AS delivered_at
)
INSERT INTO delivery_asks (guid, delivery_id, event, delivered_at, next_at)
SELECT l.guid, l.delivery_id, l.event, l.delivered_at, $1 FROM listed l
WHERE NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.guid = l.guid)
ORDER BY l.guid
ON CONFLICT (guid) DO UPDATE SET delivery_id = greatest(delivery_asks.delivery_id, excluded.delivery_id)
    WHERE delivery_asks.settled_at IS NULL AND delivery_asks.delivery_id < excluded.delivery_id

-- name: NotePodsMissing :exec
UPDATE runner_claims SET missing_since = $1 WHERE pod_uid = ANY ($2::text[]) AND missing_since IS NULL

-- name: NotePodsSeen :exec
UPDATE runner_claims SET missing_since = NULL WHERE pod_uid = ANY ($1::text[]) AND missing_since IS NOT NULL

-- name: NoteRepository :exec
INSERT INTO repositories (name, account_id, seen_at, swept_at) VALUES ($1, $2, $3, '-infinity')
ON CONFLICT (name) DO UPDATE SET account_id = excluded.account_id, seen_at = excluded.seen_at

-- name: NoteSightings :many
INSERT INTO pod_sightings AS s (pod_uid, shown, since)
SELECT l.uid, l.shown, $1 FROM (SELECT unnest($2::text[]) AS uid, unnest($3::text[]) AS shown) l ORDER BY l.uid
ON CONFLICT (pod_uid) DO UPDATE SET shown = excluded.shown,
    since = CASE WHEN s.shown = excluded.shown THEN least(s.since, excluded.since) ELSE excluded.since END
RETURNING s.pod_uid, s.since

-- name: NotifyAccount :exec
SELECT pg_notify('bullpen_account', $1::text)

-- name: NotifyAdoption :exec
SELECT pg_notify('bullpen_adoption', '')

-- name: NotifyPods :exec
SELECT pg_notify('bullpen_pod', uid) FROM unnest($1::text[]) AS uid

-- name: NotifyWork :exec
SELECT pg_notify('bullpen_work', $1::text)

-- name: OldestInLane :one
SELECT j.id, j.queued_at FROM (
    SELECT w.id, w.queued_at, w.repository FROM workflow_jobs w
    WHERE w.label_key = $1 AND w.account_id = $2 AND w.state = 'queued' AND w.held = ''
    ORDER BY w.queued_at, w.id LIMIT 64
) c
JOIN workflow_jobs j ON j.id = c.id
LEFT JOIN runner_registrations r ON r.runner_name = $3
WHERE (r.scope IS NULL OR strpos(r.scope, '/') = 0 OR c.repository = r.scope) AND j.state = 'queued' AND j.held = ''
ORDER BY c.queued_at, c.id LIMIT 1 FOR UPDATE OF j SKIP LOCKED

-- name: ParkLanes :exec
UPDATE job_lanes l SET parked = CASE WHEN v.reason = 'empty' AND EXISTS (
    SELECT 1 FROM workflow_jobs h
    WHERE h.label_key = l.label_key AND h.account_id = l.account_id AND h.state = 'queued' AND h.held <> '')
    THEN 'held' ELSE v.reason END
FROM (SELECT unnest($1::text[]) AS label_key, unnest($2::bigint[]) AS account_id,
    unnest($3::bigint[]) AS version, unnest($4::text[]) AS reason) v
WHERE l.label_key = v.label_key AND l.account_id = v.account_id AND l.version = v.version
  AND (v.reason <> 'empty' OR NOT EXISTS (
    SELECT 1 FROM workflow_jobs w
    WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''))

-- name: ParkedLanes :many
SELECT parked, count(*) AS lanes FROM job_lanes GROUP BY parked

-- name: PauseAccount :exec
UPDATE accounts SET paused = $1, paused_reason = $2, version = version + 1, updated_at = $3 WHERE id = $4

-- name: PickJobs :many
SELECT j.id, j.account_id, j.label_key, j.queued_at, j.repository
FROM workflow_jobs j
WHERE j.state = 'queued' AND j.held = '' AND j.id = ANY (ARRAY(
    SELECT c.id
    FROM (SELECT unnest($1::text[]) AS label_key, unnest($2::bigint[]) AS account_id,
        unnest($3::bigint[]) AS allowed) l
    CROSS JOIN LATERAL (
        SELECT w.id FROM workflow_jobs w
        WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
        ORDER BY w.queued_at, w.id LIMIT l.allowed
    ) c
))
ORDER BY j.queued_at, j.id
FOR UPDATE SKIP LOCKED

-- name: PoolRunners :many
SELECT c.namespace, c.pool,
    count(*) FILTER (WHERE c.state IN ('claimed', 'minted', 'executing')) AS claimed,
    count(*) FILTER (WHERE c.state IN ('claimed', 'minted', 'executing') OR s.pod_uid IS NOT NULL) AS occupied
FROM runner_claims c
LEFT JOIN runner_sessions s ON s.pod_uid = c.pod_uid AND s.ended_at IS NULL
GROUP BY c.namespace, c.pool

-- name: ProveEnded :many
UPDATE runner_claims SET proof = $1
WHERE pod_uid = ANY ($2::text[]) AND state IN ('spent', 'retired') AND proof = ''
  AND require_epoch($3::text, $4::bigint) -- CLAIM-17
RETURNING pod_uid

-- name: ProvenEnds :many
SELECT pod_uid, namespace, pod_name, pool, proof FROM runner_claims
WHERE state IN ('spent', 'retired') AND proof <> '' AND ended_at <= $1
ORDER BY ended_at, pod_uid

-- name: PruneAdoptions :execrows
DELETE FROM runner_adoptions WHERE runner_name = ANY (ARRAY(
    SELECT a.runner_name FROM runner_adoptions a WHERE a.created_at < $1
    ORDER BY a.created_at LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: PruneDeliveries :execrows

DELETE FROM webhook_deliveries WHERE guid = ANY (ARRAY(
    SELECT d.guid FROM webhook_deliveries d WHERE d.received_at < $1
    ORDER BY d.received_at LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: PruneJobs :one
WITH gone AS (
    DELETE FROM workflow_jobs WHERE id = ANY (ARRAY(
        SELECT w.id FROM workflow_jobs w
        WHERE w.completed_at < $1::timestamptz AND NOT EXISTS (
            SELECT 1 FROM runner_claims c WHERE c.job_id = w.id AND c.state IN ('claimed', 'minted', 'executing'))
        ORDER BY w.completed_at LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING id, conclusion, completed_at
), kept AS (
    INSERT INTO job_tombstones (job_id, conclusion, completed_at)
    SELECT id, conclusion, completed_at FROM gone ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone

-- name: PruneLabelSets :execrows
DELETE FROM label_sets WHERE label_key = ANY (ARRAY(
    SELECT s.label_key FROM label_sets s
    WHERE NOT EXISTS (SELECT 1 FROM job_lanes l WHERE l.label_key = s.label_key)
      AND NOT EXISTS (SELECT 1 FROM workflow_jobs w WHERE w.label_key = s.label_key)
    LIMIT $1 FOR UPDATE SKIP LOCKED))

-- name: PruneLanes :execrows
DELETE FROM job_lanes WHERE ctid = ANY (ARRAY(
    SELECT i.ctid FROM job_lanes i
    WHERE i.parked = 'empty' AND i.running = 0 AND i.head_at < $1
      AND NOT EXISTS (SELECT 1 FROM workflow_jobs w
        WHERE w.label_key = i.label_key AND w.account_id = i.account_id AND w.state = 'queued')
    ORDER BY i.head_at LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: PruneRegistrations :execrows
DELETE FROM runner_registrations WHERE runner_name = ANY (ARRAY(
    SELECT r.runner_name FROM runner_registrations r
    WHERE r.state = 'gone' AND NOT r.doubtful AND r.gone_at < $1::timestamptz
      AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.pod_uid = r.pod_uid)
    ORDER BY r.gone_at LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: PruneSessions :execrows
DELETE FROM runner_sessions WHERE pod_uid = ANY (ARRAY(
    SELECT s.pod_uid FROM runner_sessions s WHERE s.ended_at < $1::timestamptz
    ORDER BY s.ended_at LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: PruneTombstones :execrows
DELETE FROM job_tombstones WHERE job_id = ANY (ARRAY(
    SELECT t.job_id FROM job_tombstones t WHERE t.completed_at < $1
    ORDER BY t.completed_at LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: PurgeAccount :exec
DELETE FROM accounts WHERE id = $1

-- name: PurgeRegistrations :exec
DELETE FROM runner_registrations WHERE account_id = $1 AND state = 'gone'

-- name: PurgeSessions :exec
DELETE FROM runner_sessions WHERE account_id = $1

-- name: QueuedOf :many
SELECT a.id::bigint AS account_id,
    (SELECT count(*) FROM (
        SELECT 1 FROM job_lanes l JOIN workflow_jobs w ON w.label_key = l.label_key AND w.account_id = l.account_id
        WHERE l.account_id = a.id AND w.state = 'queued' AND w.held = '' LIMIT $1) q)::bigint AS queued,
    (SELECT count(*) FROM (
        SELECT 1 FROM workflow_jobs w WHERE w.account_id = a.id AND w.state = 'queued' AND w.held <> '' LIMIT $1) h)::bigint AS held
FROM unnest($2::bigint[]) AS a (id)

-- name: ReadEpoch :one
SELECT one, lineage, epoch, beaten_at, copied, hold_until, over_lineage, over_epoch, reason, lost_since, rebuilding_until, rebuilt_at, doubts, now()::timestamptz AS now FROM ledger_epoch

-- name: ReadEverythingSince :exec
UPDATE delivery_position SET version = version + 1, cursor = '', top = NULL, floor = NULL, etag = '',
    everything_since = least(everything_since, $1::timestamptz)

-- name: RecentRepositories :many
SELECT repository FROM workflow_jobs WHERE account_id = $1
GROUP BY repository ORDER BY max(updated_at) DESC LIMIT $2

-- name: RecordDelivery :execrows
INSERT INTO webhook_deliveries (guid, event, received_at) VALUES ($1, $2, $3)
ON CONFLICT (guid) DO NOTHING

-- name: RecordMints :many
WITH answered AS (
    SELECT unnest($1::text[]) AS uid, unnest($2::bigint[]) AS generation,
        unnest($3::bigint[]) AS runner_id
    WHERE require_epoch($4::text, $5::bigint) -- CLAIM-17
), locked AS ( -- claims are locked by UID everywhere
    SELECT l.pod_uid FROM runner_claims l WHERE l.pod_uid = ANY ($1::text[]) ORDER BY l.pod_uid FOR UPDATE
), held AS (
    UPDATE runner_claims c SET state = 'minted', minted_at = $6, lease_until = NULL
    FROM answered a, locked
    WHERE c.pod_uid = locked.pod_uid AND c.pod_uid = a.uid AND c.generation = a.generation
      AND c.state IN ('claimed', 'minted')
    RETURNING c.pod_uid, c.namespace, c.pod_name, c.pool, c.state, c.generation, c.lease_until, c.account_id, c.platform, c.milli_cpu, c.memory_mb, c.label_key, c.job_id, c.runner_name, c.claimed_at, c.minted_at, c.acknowledged_at, c.executing_at, c.ended_at, c.proof, c.missing_since, c.look_at, c.sequence, a.runner_id AS minted_id
), registered AS (
    UPDATE runner_registrations r SET state = 'alive', runner_id = held.minted_id
    FROM held WHERE r.runner_name = held.runner_name
), moved AS (
    UPDATE workflow_jobs j SET state = 'minted', updated_at = $6
    FROM held WHERE j.id = held.job_id AND j.state = 'claimed'
), opened AS (
    INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb,
        runner_name, job_id, repository, started_at)
    SELECT h.pod_uid, h.namespace, h.pod_name, h.pool, h.account_id, h.platform, h.milli_cpu, h.memory_mb,
        h.runner_name, h.job_id, coalesce(j.repository, ''), $6
    FROM held h LEFT JOIN workflow_jobs j ON j.id = h.job_id
    ON CONFLICT (pod_uid) DO UPDATE SET runner_name = excluded.runner_name
)
SELECT held.pod_uid, held.generation FROM held

-- name: RecoveryClaims :many
WITH listed AS (SELECT DISTINCT unnest($6::text[]) AS uid), named AS (SELECT DISTINCT unnest($7::text[]) AS uid)
SELECT c.pod_uid, c.namespace, c.pod_name, c.pool, c.state, c.generation, c.lease_until, c.account_id, c.label_key, c.job_id,
    c.runner_name, c.acknowledged_at, c.executing_at, c.ended_at, c.proof, c.missing_since, c.look_at,
    greatest(c.claimed_at, c.minted_at, c.acknowledged_at, c.executing_at)::timestamptz AS moved_at,
    coalesce(a.login, '')::text AS login, coalesce(a.kind, '')::text AS kind, a.installation_id,
    coalesce(j.repository, '')::text AS repository, coalesce(j.state, '')::text AS job_state,
    EXISTS (SELECT 1 FROM job_tombstones t WHERE t.job_id = c.job_id) AS buried,
    EXISTS (SELECT 1 FROM runner_registrations r WHERE r.pod_uid = c.pod_uid AND r.state <> 'gone') AS open,
    coalesce((SELECT max(r.gone_at) FROM runner_registrations r WHERE r.pod_uid = c.pod_uid), 'epoch')::timestamptz AS gone_at,
    s.ended_at AS stopped_at
FROM runner_claims c
LEFT JOIN listed l ON l.uid = c.pod_uid
LEFT JOIN named n ON n.uid = c.pod_uid
LEFT JOIN accounts a ON a.id = c.account_id
LEFT JOIN workflow_jobs j ON j.id = c.job_id
LEFT JOIN runner_sessions s ON s.pod_uid = c.pod_uid
WHERE c.pod_uid > $1 AND (n.uid IS NOT NULL OR $2::boolean AND c.state = 'spent' AND c.proof = ''
    OR $2::boolean AND c.state IN ('claimed', 'minted', 'executing') AND (c.missing_since IS NOT NULL OR l.uid IS NULL
    OR greatest(c.claimed_at, c.minted_at, c.acknowledged_at, c.executing_at) <= $3 AND (c.look_at IS NULL OR c.look_at <= $4)))
ORDER BY c.pod_uid LIMIT $5

-- name: Registration :one
SELECT runner_name, pod_uid, account_id, scope, generation, runner_id, state, created_at, gone_at, doubtful FROM runner_registrations WHERE runner_name = $1

-- name: RegistrationAlive :exec
UPDATE runner_registrations SET state = 'alive', runner_id = $1
WHERE runner_name = $2 AND state = 'intended'

-- name: RegistrationGone :exec
UPDATE runner_registrations SET state = 'gone', gone_at = $1 WHERE runner_name = $2 AND state <> 'gone'

-- name: RegistrationUnfound :exec
UPDATE runner_registrations SET state = 'gone', gone_at = $1, doubtful = gone_at IS NULL
WHERE runner_name = $2 AND state <> 'gone'

-- name: RegistrationsGone :exec
UPDATE runner_registrations SET state = 'gone', gone_at = $1
WHERE runner_name = ANY ($2::text[]) AND state <> 'gone'

-- name: RegistrationsOfPod :many
SELECT runner_name, runner_id, scope, state FROM runner_registrations
WHERE pod_uid = $1 AND state <> 'gone' AND generation < $2 ORDER BY created_at, runner_name

-- name: ReleaseClaim :execrows

UPDATE runner_claims SET state = 'spent', generation = generation + 1, ended_at = $1, lease_until = NULL, proof = $2
WHERE runner_claims.pod_uid = $3 AND runner_claims.generation = $4
  AND runner_claims.state IN ('claimed', 'minted', 'executing')
  AND NOT EXISTS (SELECT 1 FROM runner_registrations r WHERE r.pod_uid = $3 AND r.state <> 'gone')
  AND require_epoch($5::text, $6::bigint)

-- name: ReleaseInstallation :exec
UPDATE accounts SET installation_id = NULL, updated_at = $1, installation_changed_at = $1
WHERE installation_id = $2 AND id <> $3

-- name: RemoveInstallation :execrows
UPDATE accounts SET installation_id = NULL, suspended = false, updated_at = $1, installation_changed_at = $1
WHERE id = $2 AND installation_id = $3

-- name: RemoveRepository :exec
INSERT INTO removed_repositories (account_id, repository, removed_at) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING

-- name: RepositoriesToSweep :many
SELECT r.name, r.resume_status, r.resume_run, a.id AS account_id, a.login, a.kind, a.installation_id::bigint AS installation_id
FROM repositories r JOIN accounts a ON a.id = r.account_id
WHERE r.swept_at <= $1 AND r.seen_at >= $2 AND a.installation_id IS NOT NULL AND NOT a.suspended AND a.deleted_at IS NULL
  AND r.account_id <> ALL ($3::bigint[])
  AND NOT EXISTS (SELECT 1 FROM removed_repositories g WHERE g.account_id = r.account_id AND g.repository = r.name)
ORDER BY r.swept_at, r.name LIMIT $4

-- name: RepositoryScopes :many
SELECT DISTINCT account_id, scope FROM runner_registrations WHERE state <> 'gone' AND position('/' in scope) > 0
ORDER BY account_id, scope

-- name: RepositoryUsage :many
SELECT c.account_id, j.repository, count(*) AS jobs
FROM runner_claims c JOIN workflow_jobs j ON j.id = c.job_id
WHERE c.account_id = ANY ($1::bigint[]) AND c.platform = $2
  AND c.state IN ('claimed', 'minted', 'executing')
GROUP BY c.account_id, j.repository

-- name: RepositoryUsageOfAccounts :many
SELECT c.account_id, c.platform, j.repository, count(*) AS jobs
FROM runner_claims c JOIN workflow_jobs j ON j.id = c.job_id
WHERE c.account_id = ANY ($1::bigint[]) AND c.state IN ('claimed', 'minted', 'executing')
GROUP BY c.account_id, c.platform, j.repository

-- name: RequestAdoption :exec
INSERT INTO runner_adoptions (runner_name, runner_id, pod_uid, account_id, job_id, scope, created_at, next_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
ON CONFLICT (runner_name) DO UPDATE SET job_id = excluded.job_id, next_at = excluded.next_at, attempts = 0

-- name: RerunLater :exec
UPDATE workflow_jobs SET rerun_at = $1 WHERE id = $2 AND rerun = ''

-- name: RerunsOfRun :one
SELECT (SELECT count(DISTINCT o.rerun_at) FROM workflow_jobs o
        WHERE o.run_id = $1 AND o.rerun = 'asked' AND o.run_attempt >= $2)::bigint AS asked,
    EXISTS (SELECT 1 FROM runner_sessions s JOIN workflow_jobs j ON j.id = s.executed_job_id
        WHERE s.lost_at > $3::timestamptz AND j.run_id = $1 AND j.state = 'executing'
          AND s.runner_name = j.runner_name)::boolean AS awaited

-- name: RestoreRepositories :many
DELETE FROM removed_repositories WHERE account_id = $1 RETURNING repository

-- name: RestoreRepository :exec
DELETE FROM removed_repositories WHERE account_id = $1 AND repository = $2

-- name: RetirePods :exec
INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, claimed_at, ended_at)
SELECT v.uid, v.namespace, v.pod_name, v.pool, 'retired', $1, $2, $2
FROM (SELECT unnest($3::text[]) AS uid, unnest($4::text[]) AS namespace,
        unnest($5::text[]) AS pod_name, unnest($6::text[]) AS pool) v
WHERE require_epoch($7::text, $8::bigint) -- CLAIM-17
ORDER BY v.uid
ON CONFLICT DO NOTHING

-- name: ReturnHeld :many
UPDATE workflow_jobs SET held = ''
WHERE workflow_jobs.id IN (
    SELECT w.id FROM workflow_jobs w
    WHERE w.account_id = $1 AND w.repository = $2 AND w.state = 'queued' AND w.held <> '' AND w.held = $3
    ORDER BY w.queued_at, w.id LIMIT $4 FOR UPDATE SKIP LOCKED)
RETURNING label_key, queued_at

-- name: ReturnJob :exec
UPDATE workflow_jobs SET runner_name = '', started_at = NULL, look_at = NULL WHERE id = $1 AND state = 'queued'

-- name: ReturnNext :many
UPDATE workflow_jobs SET held = ''
WHERE workflow_jobs.id IN (
    SELECT w.id FROM workflow_jobs w
    WHERE w.account_id = $1 AND w.repository = (SELECT left_.repository FROM workflow_jobs left_ WHERE left_.id = $2)
      AND w.state = 'queued' AND w.held <> '' AND w.held = 'repository_limit'
    ORDER BY w.queued_at, w.id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING label_key, queued_at

-- name: SaveDeliveryPosition :execrows
UPDATE delivery_position SET version = version + 1, read_until = $1, cursor = $2, top = $3, floor = $4,
    etag = $5, everything_since = $6
WHERE version = $7

-- name: SeeInstallations :exec
UPDATE accounts SET installation_missing_at = NULL WHERE id = ANY ($1::bigint[]) AND installation_missing_at IS NOT NULL

-- name: SessionChanges :many
WITH spans AS (
    SELECT e.namespace, e.pool,
        greatest(0, ceil(extract(epoch FROM e.started_at - $1::timestamptz) / 60))::bigint AS first,
        least($2::bigint, ceil(extract(epoch FROM e.ended_at - $1::timestamptz) / 60))::bigint AS past
    FROM runner_sessions e WHERE e.ended_at > $1::timestamptz
    UNION ALL
    SELECT o.namespace, o.pool,
        greatest(0, ceil(extract(epoch FROM o.started_at - $1::timestamptz) / 60))::bigint, $2::bigint
    FROM runner_sessions o JOIN runner_claims c ON c.pod_uid = o.pod_uid WHERE o.ended_at IS NULL
), changes AS (
    SELECT s.namespace, s.pool, s.first AS minute, 1 AS change FROM spans s WHERE s.first < s.past
    UNION ALL
    SELECT s.namespace, s.pool, s.past, -1 FROM spans s WHERE s.first < s.past
)
SELECT c.namespace, c.pool, c.minute::bigint AS minute, sum(c.change)::bigint AS change
FROM changes c GROUP BY c.namespace, c.pool, c.minute

-- name: SessionFound :exec
INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb,
    runner_name, started_at)
SELECT c.pod_uid, c.namespace, c.pod_name, c.pool, c.account_id, c.platform, c.milli_cpu, c.memory_mb, c.runner_name, $1
FROM runner_claims c WHERE c.pod_uid = $2
ON CONFLICT (pod_uid) DO UPDATE SET runner_name = excluded.runner_name, ended_at = NULL

-- name: SessionJobEnded :exec
UPDATE runner_sessions SET executed_job_id = $1::bigint, job_started_at = coalesce(job_started_at, $2),
    job_ended_at = $3 WHERE pod_uid = $4

-- name: SessionPodEnded :exec
UPDATE runner_sessions SET ended_at = coalesce(ended_at, $1), exit_code = coalesce(exit_code, $2)
WHERE pod_uid = $3

-- name: SessionReleased :exec
UPDATE runner_sessions SET job_ended_at = $1 WHERE pod_uid = $2 AND job_started_at IS NOT NULL AND job_ended_at IS NULL

-- name: SessionStarted :exec
INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb,
    runner_name, executed_job_id, repository, started_at, job_started_at)
SELECT c.pod_uid, c.namespace, c.pod_name, c.pool, c.account_id, c.platform, c.milli_cpu, c.memory_mb,
    c.runner_name, $1::bigint, $2, $3, $4
FROM runner_claims c WHERE c.pod_uid = $5
ON CONFLICT (pod_uid) DO UPDATE SET executed_job_id = excluded.executed_job_id, repository = excluded.repository,
    job_started_at = excluded.job_started_at

-- name: SessionsLost :exec
UPDATE runner_sessions SET lost_at = coalesce(lost_at, $1)
WHERE pod_uid = ANY ($2::text[]) AND job_started_at IS NOT NULL AND job_ended_at IS NULL AND ended_at IS NULL

-- name: SetAside :execrows
UPDATE workflow_jobs SET held = 'repository_limit'
WHERE workflow_jobs.id IN (
    SELECT j.id FROM (
        SELECT c.id, c.repository, l.account_id, l.label_key
        FROM (SELECT DISTINCT v.label_key, v.account_id FROM
            (SELECT unnest($1::text[]) AS label_key, unnest($2::bigint[]) AS account_id) v) l
        CROSS JOIN LATERAL (
            SELECT w.id, w.repository FROM workflow_jobs w
            WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
            ORDER BY w.queued_at, w.id LIMIT $3
        ) c
    ) h
    JOIN (SELECT unnest($1::text[]) AS label_key, unnest($2::bigint[]) AS account_id,
        unnest($4::text[]) AS repository) full_ ON full_.label_key = h.label_key
        AND full_.account_id = h.account_id AND full_.repository = h.repository
    JOIN workflow_jobs j ON j.id = h.id
    WHERE j.state = 'queued' AND j.held = ''
    FOR UPDATE OF j SKIP LOCKED)

-- name: SetLimits :exec
INSERT INTO account_limits (account_id, platform, milli_cpu, memory_mb, jobs, repository_jobs)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (account_id, platform) DO UPDATE
SET milli_cpu = excluded.milli_cpu, memory_mb = excluded.memory_mb, jobs = excluded.jobs,
    repository_jobs = excluded.repository_jobs

-- name: SettleAsks :exec
UPDATE delivery_asks SET settled_at = $1 WHERE guid = ANY ($2::text[]) AND settled_at IS NULL

-- name: SettleRecorded :execrows
UPDATE delivery_asks SET settled_at = $1
WHERE settled_at IS NULL AND EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.guid = delivery_asks.guid)

-- name: SettleRedelivered :exec
INSERT INTO delivery_asks (guid, delivery_id, event, delivered_at, next_at, settled_at)
SELECT unnest($1::text[]), unnest($2::bigint[]), unnest($3::text[]), unnest($4::timestamptz[]),
    $5::timestamptz, $5::timestamptz
ON CONFLICT (guid) DO UPDATE SET settled_at = excluded.settled_at WHERE delivery_asks.settled_at IS NULL

-- name: ShowFound :execrows
UPDATE runner_claims SET runner_name = $1, generation = greatest(generation + 1, $2), lease_until = NULL,
    state = CASE WHEN state = 'claimed' THEN 'minted' ELSE state END, minted_at = coalesce(minted_at, $3),
    acknowledged_at = coalesce(acknowledged_at, $4)
WHERE pod_uid = $5 AND state IN ('claimed', 'minted', 'executing')

-- name: SpendClaim :execrows
UPDATE runner_claims SET state = 'spent', generation = generation + 1, ended_at = $1, lease_until = NULL,
    proof = 'GitHub said that its runner has completed its job'
WHERE pod_uid = $2 AND state = $3

-- name: StartJob :execrows
UPDATE workflow_jobs SET state = 'executing', runner_name = $1, started_at = $2, updated_at = $3, held = ''
WHERE id = $4 AND state = $5

-- name: StrayJobs :many
SELECT j.id, j.account_id, j.repository, j.state, j.label_key, j.updated_at, j.runner_name, a.login, a.kind, a.installation_id
FROM workflow_jobs j JOIN accounts a ON a.id = j.account_id
WHERE j.state IN ('claimed', 'minted', 'executing') AND j.id > $1
  AND (j.state <> 'executing' OR j.updated_at <= $2 AND (j.look_at IS NULL OR j.look_at <= $3))
  AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.job_id = j.id AND c.state IN ('claimed', 'minted', 'executing'))
ORDER BY j.id LIMIT $4

-- name: StrayRegistrations :many
SELECT r.pod_uid, min(r.created_at)::timestamptz AS created_at, min(r.account_id)::bigint AS account_id,
    min(a.login)::text AS login, min(a.kind)::text AS kind, coalesce(min(a.installation_id), 0)::bigint AS installation_id
FROM runner_registrations r JOIN accounts a ON a.id = r.account_id
WHERE r.state <> 'gone' AND r.created_at <= $1 AND r.pod_uid > $2
  AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.pod_uid = r.pod_uid)
  AND NOT EXISTS (SELECT 1 FROM unnest($3::text[]) l (uid) WHERE l.uid = r.pod_uid)
GROUP BY r.pod_uid ORDER BY r.pod_uid LIMIT $4

-- name: StraySessions :many
SELECT s.pod_uid, s.started_at FROM runner_sessions s
WHERE s.ended_at IS NULL AND s.pod_uid > $1
  AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.pod_uid = s.pod_uid)
  AND NOT EXISTS (SELECT 1 FROM unnest($2::text[]) l (uid) WHERE l.uid = s.pod_uid)
ORDER BY s.pod_uid LIMIT $3

-- name: Swept :exec
UPDATE repositories SET swept_at = $1, resume_status = '', resume_run = 0 WHERE name = $2

-- name: SweptPartly :exec
UPDATE repositories SET resume_status = $1, resume_run = $2 WHERE name = $3

-- name: TakeForRelease :execrows

UPDATE runner_claims SET generation = $1, lease_until = $2
WHERE pod_uid = $3 AND generation = $4 AND state IN ('claimed', 'minted', 'executing')
  AND (lease_until IS NULL OR lease_until <= $5 OR lease_until > $6)
  AND require_epoch($7::text, $8::bigint)

-- name: TakeOverClaim :execrows
UPDATE runner_claims SET generation = $1, lease_until = $2, sequence = greatest(sequence, $3)
WHERE pod_uid = $4 AND generation = $5 AND state IN ('claimed', 'minted')
  AND acknowledged_at IS NULL AND (lease_until IS NULL OR lease_until <= $6 OR lease_until > $7)
  AND require_epoch($8::text, $9::bigint)

-- name: TombstoneExists :one
SELECT EXISTS (SELECT 1 FROM job_tombstones WHERE job_id = $1)

-- name: TouchAccount :exec
UPDATE accounts SET version = version + 1, updated_at = $1 WHERE id = $2

-- name: UnbookRerun :exec
UPDATE workflow_jobs SET rerun = $1, rerun_at = $2 WHERE id = $3 AND rerun IN ('', 'asked')

-- name: UnownedPods :many
SELECT n.uid::text AS pod_uid FROM unnest($1::text[]) n (uid)
WHERE NOT EXISTS (SELECT 1 FROM runner_claims c
    WHERE c.pod_uid = n.uid AND (c.state IN ('claimed', 'minted', 'executing') OR c.proof <> ''))

-- name: UnparkAccount :exec
WITH mine AS (
    SELECT m.label_key FROM job_lanes m WHERE m.account_id = $1 ORDER BY m.label_key FOR UPDATE
)
UPDATE job_lanes l SET parked = CASE WHEN l.parked IN ('limit', 'suspended') THEN '' ELSE l.parked END,
    version = l.version + 1
FROM mine WHERE l.account_id = $1 AND l.label_key = mine.label_key

-- name: UnparkLabelSets :exec
WITH parked AS (
    SELECT p.label_key, p.account_id FROM job_lanes p WHERE p.label_key = ANY ($1::text[]) AND p.parked = 'limit'
    ORDER BY p.account_id, p.label_key FOR UPDATE
)
UPDATE job_lanes l SET parked = '', version = l.version + 1
FROM parked WHERE l.label_key = parked.label_key AND l.account_id = parked.account_id

-- name: UpsertInstallation :exec
INSERT INTO accounts (id, login, kind, installation_id, suspended, created_at, updated_at, installation_changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $6, $6)
ON CONFLICT (id) DO UPDATE SET login = excluded.login, kind = excluded.kind,
    installation_id = excluded.installation_id, suspended = excluded.suspended, updated_at = excluded.updated_at,
    installation_changed_at = excluded.installation_changed_at, installation_missing_at = NULL, deleted_at = NULL

-- name: UsageOfAccounts :many
SELECT account_id, platform, count(*) AS jobs, sum(milli_cpu)::bigint AS milli_cpu, sum(memory_mb)::bigint AS memory_mb
FROM runner_claims
WHERE account_id = ANY ($1::bigint[]) AND state IN ('claimed', 'minted', 'executing')
GROUP BY account_id, platform

-- name: WaitingLanes :many
SELECT l.label_key, l.account_id, a.login, a.kind, a.installation_id,
    (a.suspended OR a.paused OR a.deleted_at IS NOT NULL)::boolean AS suspended
FROM job_lanes l
JOIN accounts a ON a.id = l.account_id
WHERE l.label_key = ANY ($1::text[]) AND l.parked <> 'empty'
ORDER BY l.account_id, l.label_key
