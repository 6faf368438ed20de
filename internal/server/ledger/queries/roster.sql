-- name: RepositoryScopes :many
-- Where registrations of ours may be alive, beside the accounts' own scopes.
SELECT DISTINCT account_id, scope, repository_id FROM runner_registrations WHERE state <> 'gone' AND position('/' in scope) > 0
ORDER BY account_id, scope, repository_id;

-- name: ProveEnded :many
-- EXCL-4: what a runner that shows work is removed on. Only of rows whose work is over: one that was adopted meanwhile works.
UPDATE runner_claims SET proof = @proof
WHERE pod_uid = ANY (@pod_uids::text[]) AND state IN ('spent', 'retired') AND proof = ''
  AND require_epoch(@known_lineage::text, @known_epoch::bigint) -- CLAIM-17
RETURNING pod_uid;

-- name: RegistrationsGone :exec
UPDATE runner_registrations SET state = 'gone', gone_at = @now
WHERE runner_name = ANY (@runner_names::text[]) AND state <> 'gone';

-- name: JobOfRunner :one
-- The job that GitHub says this runner executes, if any. Another account may have a runner of that name.
SELECT id FROM workflow_jobs WHERE runner_name = @runner_name AND account_id = @account_id AND state = 'executing' ORDER BY id LIMIT 1;

-- name: SessionFound :exec
-- A busy runner of which nothing more is known, as after a restore.
INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb,
    runner_name, started_at)
SELECT c.pod_uid, c.namespace, c.pod_name, c.pool, c.account_id, c.platform, c.milli_cpu, c.memory_mb, c.runner_name, @now
FROM runner_claims c WHERE c.pod_uid = @pod_uid
ON CONFLICT (pod_uid) DO UPDATE SET runner_name = excluded.runner_name, ended_at = NULL;

-- name: InsertFound :execrows
-- CLAIM-17: GitHub shows a registration of a pod that no row knows of: it may be given a job at any moment.
INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, milli_cpu,
    memory_mb, runner_name, claimed_at, minted_at, acknowledged_at)
VALUES (@pod_uid, @namespace, @pod_name, @pool, 'minted', @generation, @account_id, @platform, @milli_cpu,
    @memory_mb, @runner_name, @now, @now, sqlc.narg(acknowledged_at))
ON CONFLICT (pod_uid) DO NOTHING;

-- name: ShowFound :execrows
-- CLAIM-15, CLAIM-17: a live row of an older time learns of the registration that GitHub shows now; every actor on it
-- of that time is void.
UPDATE runner_claims SET runner_name = @runner_name, generation = greatest(generation + 1, @generation), lease_until = NULL,
    state = CASE WHEN state = 'claimed' THEN 'minted' ELSE state END, minted_at = coalesce(minted_at, @now),
    acknowledged_at = coalesce(acknowledged_at, sqlc.narg(acknowledged_at))
WHERE pod_uid = @pod_uid AND state IN ('claimed', 'minted', 'executing');

-- name: RecentRepositories :many
-- Of an account, sorted: the index of when repositories were seen has those of all accounts.
SELECT name FROM repositories WHERE account_id = @account_id ORDER BY coalesce(seen_at, '-infinity') DESC, name LIMIT @most;
