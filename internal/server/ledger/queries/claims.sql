-- name: Claims :many
SELECT c.*, coalesce(a.login, '')::text AS login, coalesce(a.kind, '')::text AS kind, a.installation_id,
    coalesce(j.repository, '')::text AS repository, coalesce(j.repository_id, 0)::bigint AS repository_id,
    (coalesce(l.repository_jobs, 0) > 0)::boolean AS capped,
    coalesce((SELECT s.labels FROM label_sets s WHERE s.label_key = c.label_key LIMIT 1), '{}')::text[] AS labels,
    ((SELECT r.account_id FROM refusals r WHERE r.account_id = c.account_id AND r.repository = j.repository LIMIT 1) IS NOT NULL)::boolean AS refused
FROM runner_claims c
LEFT JOIN LATERAL (SELECT o.login, o.kind, o.installation_id FROM accounts o WHERE o.id = c.account_id LIMIT 1) a ON true
LEFT JOIN LATERAL (SELECT w.repository, w.repository_id FROM workflow_jobs w WHERE w.id = c.job_id LIMIT 1) j ON true
LEFT JOIN LATERAL (
    SELECT m.repository_jobs FROM account_limits m WHERE m.account_id = c.account_id AND m.platform = c.platform LIMIT 1
) l ON true
WHERE c.pod_uid = ANY (@pod_uids::text[]);

-- name: InsertClaims :many
-- EXCL-1, CLAIM-1: the first insert of the pod's row owns its shot; a conflict is the other side's win. The name
-- to be minted is written in the same statement, before GitHub is asked.
WITH wanted AS (
    SELECT unnest(@pod_uids::text[]) AS uid, unnest(@namespaces::text[]) AS namespace,
        unnest(@pod_names::text[]) AS pod_name, unnest(@generations::bigint[]) AS generation,
        unnest(@accounts::bigint[]) AS account_id, unnest(@label_keys::text[]) AS label_key,
        unnest(@job_ids::bigint[]) AS job_id, unnest(@sequences::bigint[]) AS sequence, unnest(@runner_names::text[]) AS runner_name
    WHERE require_epoch(@known_lineage::text, @known_epoch::bigint) -- CLAIM-17
), won AS (
    INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, lease_until, account_id,
        platform, milli_cpu, memory_mb, label_key, job_id, runner_name, claimed_at, sequence)
    SELECT w.uid, w.namespace, w.pod_name, @pool, 'claimed', w.generation, @lease_until, w.account_id,
        @platform, @milli_cpu, @memory_mb, w.label_key, w.job_id, w.runner_name, @now, w.sequence
    FROM wanted w ORDER BY w.uid
    ON CONFLICT DO NOTHING
    RETURNING pod_uid, runner_name, account_id, generation
), intended AS (
    INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, repository_id, generation, state, created_at)
    SELECT won.runner_name, won.pod_uid, won.account_id, (@scopes::text[])[array_position(@pod_uids::text[], won.pod_uid)],
        (@repository_ids::bigint[])[array_position(@pod_uids::text[], won.pod_uid)], won.generation, 'intended', @now
    FROM won -- a pod is there once
)
SELECT won.pod_uid FROM won;

-- name: RetirePods :exec
-- EXCL-1: the other side of the same primary key.
INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, claimed_at, ended_at)
SELECT v.uid, v.namespace, v.pod_name, v.pool, 'retired', @generation, @now, @now
FROM (SELECT unnest(@pod_uids::text[]) AS uid, unnest(@namespaces::text[]) AS namespace,
        unnest(@pod_names::text[]) AS pod_name, unnest(@pools::text[]) AS pool) v
WHERE require_epoch(@known_lineage::text, @known_epoch::bigint) -- CLAIM-17
ORDER BY v.uid
ON CONFLICT DO NOTHING;

-- name: ClaimStates :many
SELECT c.pod_uid, c.state, c.proof, coalesce(c.account_id, 0)::bigint AS account_id, coalesce(a.login, '')::text AS login
FROM runner_claims c LEFT JOIN accounts a ON a.id = c.account_id
WHERE c.pod_uid = ANY (@pod_uids::text[]);

-- name: TakeOverClaim :execrows
-- CLAIM-15, CLAIM-16: a new generation by compare-and-set; from here on the former actor's writes and answers are void. A
-- lease beyond what any replica takes is none: the clock of the replica that took it is wrong.
UPDATE runner_claims SET generation = @next, lease_until = @lease_until, sequence = greatest(sequence, @sequence)
WHERE pod_uid = @pod_uid AND generation = @expected AND state IN ('claimed', 'minted')
  AND acknowledged_at IS NULL AND (lease_until IS NULL OR lease_until <= @now OR lease_until > @beyond)
  AND require_epoch(@known_lineage::text, @known_epoch::bigint); -- CLAIM-17

-- name: TakeForRelease :execrows
-- CLAIM-15, EXCL-6: the release of a claim takes a new generation first, unless a replica is minting it.
UPDATE runner_claims SET generation = @next, lease_until = @lease_until
WHERE pod_uid = @pod_uid AND generation = @expected AND state IN ('claimed', 'minted', 'executing')
  AND (lease_until IS NULL OR lease_until <= @now OR lease_until > @beyond)
  AND require_epoch(@known_lineage::text, @known_epoch::bigint); -- CLAIM-17

-- name: ReleaseClaim :execrows
-- EXCL-6: only with no registration left that may be alive, and only by the generation that proved it (CLAIM-15).
UPDATE runner_claims SET state = 'spent', generation = generation + 1, ended_at = @now, lease_until = NULL, proof = @proof
WHERE runner_claims.pod_uid = @pod_uid AND runner_claims.generation = @generation
  AND runner_claims.state IN ('claimed', 'minted', 'executing')
  AND NOT EXISTS (SELECT 1 FROM runner_registrations r WHERE r.pod_uid = @pod_uid AND r.state <> 'gone')
  AND require_epoch(@known_lineage::text, @known_epoch::bigint); -- CLAIM-17

-- name: IntendRegistration :execrows
-- The name of a further mint, written before GitHub is asked and only by the generation that holds the claim.
WITH held AS (
    UPDATE runner_claims SET runner_name = @runner_name
    WHERE runner_claims.pod_uid = @pod_uid AND runner_claims.generation = @generation
      AND runner_claims.state IN ('claimed', 'minted') AND require_epoch(@known_lineage::text, @known_epoch::bigint) -- CLAIM-17
    RETURNING pod_uid, account_id
)
INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, repository_id, generation, state, created_at)
SELECT @runner_name, held.pod_uid, held.account_id, @scope::text, @repository_id::bigint, @generation, 'intended', @now FROM held;

-- name: RecordMints :many
-- CLAIM-15: an answer from GitHub counts only while its generation still holds the claim. Claim and job move in one
-- statement (CLAIM-2). Mints that are answered at the same time share a commit; the generations that still held come back.
-- An answer's key is its pod's UID and its generation. Keys are looked up in the array, which costs far less than to compare rows with
-- rows, as a join of such lists does.
WITH locked AS ( -- claims are locked by UID everywhere
    SELECT l.pod_uid FROM runner_claims l WHERE l.pod_uid = ANY (@pod_uids::text[]) ORDER BY l.pod_uid FOR UPDATE
), held AS (
    UPDATE runner_claims c SET state = 'minted', minted_at = @now, lease_until = NULL
    WHERE c.pod_uid = ANY (ARRAY(SELECT l.pod_uid FROM locked l))
      AND array_position(@keys::text[], c.pod_uid || ' ' || c.generation) IS NOT NULL
      AND c.state || '' IN ('claimed', 'minted')
      AND (SELECT require_epoch(@known_lineage::text, @known_epoch::bigint)) -- CLAIM-17
    RETURNING c.*, (@runner_ids::bigint[])[array_position(@keys::text[], c.pod_uid || ' ' || c.generation)] AS minted_id
), registered AS (
    UPDATE runner_registrations r SET state = 'alive',
        runner_id = (ARRAY(SELECT n.minted_id FROM held n))[array_position(ARRAY(SELECT n.runner_name FROM held n), r.runner_name)]
    WHERE r.runner_name = ANY (ARRAY(SELECT n.runner_name FROM held n))
), moved AS (
    UPDATE workflow_jobs j SET state = 'minted', updated_at = @now
    WHERE j.id = ANY (ARRAY(SELECT n.job_id FROM held n)) AND j.state || '' = 'claimed'
), opened AS (
    INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb,
        runner_name, job_id, repository, claimed_at, started_at)
    SELECT h.pod_uid, h.namespace, h.pod_name, h.pool, h.account_id, h.platform, h.milli_cpu, h.memory_mb,
        h.runner_name, h.job_id, coalesce(j.repository, ''), h.claimed_at, @now
    FROM held h LEFT JOIN LATERAL (SELECT w.repository FROM workflow_jobs w WHERE w.id = h.job_id LIMIT 1) j ON true
    ON CONFLICT (pod_uid) DO UPDATE SET runner_name = excluded.runner_name
)
SELECT held.pod_uid, held.generation FROM held;

-- name: RegistrationsOfPod :many
-- CLAIM-15: only those of earlier generations. Whoever asks late may have been overtaken, and what its successor has minted
-- is not its to remove.
SELECT runner_name, runner_id, scope, repository_id, state FROM runner_registrations
WHERE pod_uid = @pod_uid AND state <> 'gone' AND generation < @before ORDER BY created_at, runner_name;

-- name: Registration :one
SELECT * FROM runner_registrations WHERE runner_name = @runner_name;

-- name: RegistrationGone :exec
UPDATE runner_registrations SET state = 'gone', gone_at = @now WHERE runner_name = @runner_name AND state <> 'gone';

-- name: RegistrationUnfound :exec
-- Its mint was never answered, and GitHub shows none: it may come yet. It is doubted once.
UPDATE runner_registrations SET state = 'gone', gone_at = @now, doubtful = gone_at IS NULL
WHERE runner_name = @runner_name AND state <> 'gone';

-- name: RegistrationAlive :exec
-- A runner that GitHub named in an event exists, whatever our mint's answer said.
UPDATE runner_registrations SET state = 'alive', runner_id = @runner_id
WHERE runner_name = @runner_name AND state = 'intended';

-- name: EndLease :execrows
-- The holder gives up without an answer from GitHub; the pod's next poll takes the claim over.
UPDATE runner_claims SET lease_until = NULL WHERE pod_uid = @pod_uid AND generation = @generation;

-- name: AcknowledgeClaim :execrows
UPDATE runner_claims SET acknowledged_at = coalesce(acknowledged_at, @now), lease_until = NULL
WHERE pod_uid = @pod_uid AND generation = @generation AND state IN ('minted', 'executing');

-- name: AcknowledgeByTermination :one
-- The poller's container has terminated: whatever generation it was given, it will never ask again.
UPDATE runner_claims SET acknowledged_at = @now, lease_until = NULL
WHERE pod_uid = @pod_uid AND state IN ('minted', 'executing') AND acknowledged_at IS NULL
RETURNING account_id;

-- name: LockClaim :one
SELECT * FROM runner_claims WHERE pod_uid = @pod_uid FOR UPDATE;

-- name: LockClaimsOfEvent :many
-- The claims an event can touch: the one whose runner it names and the one that was made for its job, locked in one
-- order so that two runners that swapped jobs cannot wait for each other. Each is found by its own index; what has changed until
-- it could be locked is none of them any more.
SELECT * FROM runner_claims
WHERE pod_uid = ANY (ARRAY(
        SELECT n.pod_uid FROM runner_claims n WHERE n.runner_name = @runner_name AND @runner_name::text <> ''
        UNION ALL
        SELECT j.pod_uid FROM runner_claims j WHERE j.job_id = @job_id::bigint AND j.state IN ('claimed', 'minted', 'executing')))
    AND (runner_name = @runner_name AND @runner_name <> ''
        OR job_id = @job_id::bigint AND state IN ('claimed', 'minted', 'executing'))
ORDER BY pod_uid FOR UPDATE;

-- name: DropClaim :execrows
-- Only for a claim whose mint definitely never happened (CLAIM-8).
DELETE FROM runner_claims WHERE pod_uid = @pod_uid AND generation = @generation AND state = 'claimed';

-- name: BindClaim :execrows
UPDATE runner_claims SET job_id = @job_id WHERE pod_uid = @pod_uid;

-- name: ExecuteClaim :execrows
UPDATE runner_claims SET state = 'executing', job_id = @job_id, executing_at = coalesce(executing_at, @now),
    acknowledged_at = coalesce(acknowledged_at, @now), lease_until = NULL
WHERE pod_uid = @pod_uid AND state = @expected;

-- name: SpendClaim :execrows
UPDATE runner_claims SET state = 'spent', generation = generation + 1, ended_at = @now, lease_until = NULL,
    proof = 'GitHub said that its runner has completed its job'
WHERE pod_uid = @pod_uid AND state = @expected;

-- name: AdoptClaim :execrows
-- CLAIM-13: GitHub confirms that this pod's runner runs a job now. A pod that has worked for an account works for no other.
INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, milli_cpu,
    memory_mb, label_key, job_id, runner_name, claimed_at, minted_at, acknowledged_at, executing_at)
VALUES (@pod_uid, @namespace, @pod_name, @pool, 'executing', @generation, @account_id, @platform, @milli_cpu,
    @memory_mb, @label_key, @job_id, @runner_name, @now, @now, @now, @now)
ON CONFLICT (pod_uid) DO UPDATE SET state = 'executing', generation = runner_claims.generation + 1,
    account_id = excluded.account_id, platform = excluded.platform, milli_cpu = excluded.milli_cpu,
    memory_mb = excluded.memory_mb, label_key = excluded.label_key, job_id = excluded.job_id,
    runner_name = excluded.runner_name, acknowledged_at = excluded.acknowledged_at,
    executing_at = excluded.executing_at, ended_at = NULL, lease_until = NULL, proof = ''
WHERE runner_claims.state IN ('spent', 'retired') AND (runner_claims.account_id IS NULL OR runner_claims.account_id = excluded.account_id);

-- name: ForgetPod :one
-- EXCL-1: the UID is proven gone by an uncached read, and no request in its name is under way any more.
DELETE FROM runner_claims WHERE pod_uid = @pod_uid AND state IN ('spent', 'retired')
RETURNING coalesce(account_id, 0)::bigint AS account_id, platform, stopped_at;

-- name: ClaimStopped :one
-- Its pod's containers have ended: a spent claim is charged to no account from now on (TEN-4).
UPDATE runner_claims SET stopped_at = @stopped_at WHERE pod_uid = @pod_uid AND stopped_at IS NULL
RETURNING coalesce(account_id, 0)::bigint AS account_id, platform, state;

-- name: EndedPods :many
SELECT pod_uid, namespace, pod_name, pool FROM runner_claims
WHERE state IN ('spent', 'retired') AND pod_uid <> ALL (@known::text[])
ORDER BY ended_at LIMIT @most;

-- name: SessionStarted :exec
INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb,
    runner_name, executed_job_id, repository, claimed_at, acknowledged_at, started_at, job_started_at)
SELECT c.pod_uid, c.namespace, c.pod_name, c.pool, c.account_id, c.platform, c.milli_cpu, c.memory_mb,
    c.runner_name, @job_id::bigint, @repository, c.claimed_at, c.acknowledged_at, @now, @job_started_at
FROM runner_claims c WHERE c.pod_uid = @pod_uid
ON CONFLICT (pod_uid) DO UPDATE SET executed_job_id = excluded.executed_job_id, repository = excluded.repository,
    claimed_at = coalesce(runner_sessions.claimed_at, excluded.claimed_at),
    acknowledged_at = coalesce(runner_sessions.acknowledged_at, excluded.acknowledged_at),
    job_started_at = excluded.job_started_at;

-- name: SessionJobEnded :exec
UPDATE runner_sessions SET executed_job_id = @job_id::bigint, job_started_at = coalesce(job_started_at, @job_started_at),
    job_ended_at = @job_ended_at WHERE pod_uid = @pod_uid;

-- name: SessionHeardOf :exec
-- What GitHub says of a job whose claim is over: webhooks may be late by longer than pods are remembered.
UPDATE runner_sessions SET executed_job_id = @job_id::bigint, repository = @repository, job_started_at = coalesce(job_started_at, sqlc.narg(job_started_at)),
    job_ended_at = coalesce(job_ended_at, sqlc.narg(job_ended_at))
WHERE pod_uid = @pod_uid AND runner_name = @runner_name AND account_id = @account_id AND (executed_job_id IS NULL OR executed_job_id = @job_id::bigint);

-- name: SessionPodEnded :exec
UPDATE runner_sessions SET ended_at = coalesce(ended_at, @ended_at), exit_code = coalesce(exit_code, sqlc.narg(exit_code))
WHERE pod_uid = @pod_uid;

-- name: RequestAdoption :exec
INSERT INTO runner_adoptions (runner_name, runner_id, pod_uid, account_id, job_id, scope, repository_id, created_at, next_at)
VALUES (@runner_name, @runner_id, @pod_uid, @account_id, @job_id, @scope, @repository_id, @now, @now)
ON CONFLICT (runner_name) DO UPDATE SET job_id = excluded.job_id, next_at = excluded.next_at, attempts = 0
WHERE runner_adoptions.account_id = excluded.account_id; -- another account's runner of that name changes nothing

-- name: DueAdoptions :many
-- Whoever takes one moves it on, so that two replicas do not ask GitHub the same thing at once.
UPDATE runner_adoptions SET next_at = @later, attempts = runner_adoptions.attempts + 1
WHERE runner_adoptions.runner_name IN (
    SELECT due.runner_name FROM runner_adoptions due
    WHERE due.next_at <= @now ORDER BY due.next_at LIMIT @most FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: CloseAdoption :exec
DELETE FROM runner_adoptions WHERE runner_name = @runner_name;

-- name: EnsureRegistration :exec
-- A runner that GitHub knows and our rows do not, as after a restore.
INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, repository_id, generation, runner_id, state, created_at)
VALUES (@runner_name, @pod_uid, @account_id, @scope, @repository_id, @generation, @runner_id, 'alive', @now)
ON CONFLICT (runner_name) DO UPDATE SET state = 'alive', runner_id = excluded.runner_id, gone_at = NULL;

-- name: LiveClaimOfJob :one
SELECT * FROM runner_claims WHERE job_id = @job_id::bigint AND state IN ('claimed', 'minted', 'executing') FOR UPDATE;
