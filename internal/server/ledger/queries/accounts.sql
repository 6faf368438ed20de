-- name: UpsertInstallation :exec
-- An installation event, or GitHub's list. An account that an administrator deleted is back when the App is installed again;
-- an administrator's suspension outlives both.
INSERT INTO accounts (id, login, kind, installation_id, suspended, created_at, updated_at, installation_changed_at)
VALUES (@id, @login, @kind, @installation_id, @suspended, @now, @now, @now)
ON CONFLICT (id) DO UPDATE SET login = excluded.login, kind = excluded.kind,
    installation_id = excluded.installation_id, suspended = excluded.suspended, updated_at = excluded.updated_at,
    installation_changed_at = excluded.installation_changed_at, installation_missing_at = NULL, deleted_at = NULL;

-- name: EnsureAccount :exec
-- Any event that names an unknown account. Keeps what an installation event said; only fills what is missing.
INSERT INTO accounts (id, login, kind, installation_id, created_at, updated_at, installation_changed_at)
VALUES (@id, @login, @kind, @installation_id, @now, @now, @now)
ON CONFLICT (id) DO UPDATE SET login = excluded.login, installation_id = excluded.installation_id,
    updated_at = excluded.updated_at, deleted_at = NULL, installation_missing_at = NULL,
    -- A new installation begins unsuspended; what the former one was counts no longer.
    suspended = accounts.suspended AND accounts.installation_id IS NOT DISTINCT FROM excluded.installation_id,
    installation_changed_at = CASE WHEN accounts.installation_id IS DISTINCT FROM excluded.installation_id
        THEN excluded.installation_changed_at ELSE accounts.installation_changed_at END
WHERE accounts.installation_id IS DISTINCT FROM excluded.installation_id OR accounts.login <> excluded.login;

-- name: EnsureOrphan :exec
-- A late event of an installation that has ended: its jobs are kept, and nothing is served to its account.
INSERT INTO accounts (id, login, kind, created_at, updated_at) VALUES (@id, @login, @kind, @now, @now)
ON CONFLICT (id) DO NOTHING;

-- name: ReleaseInstallation :exec
-- An installation id belongs to one account; a re-created organization may bring it along under a new id.
UPDATE accounts SET installation_id = NULL, updated_at = @now, installation_changed_at = @now
WHERE installation_id = @installation_id AND id <> @id;

-- name: EnsureLimits :exec
INSERT INTO account_limits (account_id, platform, milli_cpu, memory_mb, jobs, repository_jobs)
VALUES (@account_id, @platform, @milli_cpu, @memory_mb, @jobs, @repository_jobs)
ON CONFLICT (account_id, platform) DO NOTHING;

-- name: SetLimits :exec
INSERT INTO account_limits (account_id, platform, milli_cpu, memory_mb, jobs, repository_jobs)
VALUES (@account_id, @platform, @milli_cpu, @memory_mb, @jobs, @repository_jobs)
ON CONFLICT (account_id, platform) DO UPDATE
SET milli_cpu = excluded.milli_cpu, memory_mb = excluded.memory_mb, jobs = excluded.jobs,
    repository_jobs = excluded.repository_jobs;

-- name: RemoveInstallation :execrows
-- Only that installation: its end may be reported after the next one's start.
UPDATE accounts SET installation_id = NULL, suspended = false, updated_at = @now, installation_changed_at = @now
WHERE id = @id AND installation_id = @installation_id;

-- name: EndInstallation :exec
INSERT INTO ended_installations (id, ended_at) VALUES (@id, @now) ON CONFLICT (id) DO NOTHING;

-- name: InstallationEnded :one
SELECT EXISTS (SELECT 1 FROM ended_installations WHERE id = @id);

-- name: AccountIsKnown :one
SELECT EXISTS (SELECT 1 FROM accounts WHERE id = @id AND login = @login
    AND installation_id = sqlc.arg(installation_id)::bigint);

-- name: LockAccountLimits :many
-- What every batch locks first (CLAIM-5): the holder of these rows sees the claims of every batch before it, and every
-- batch after it sees its claims.
SELECT platform, milli_cpu, memory_mb, jobs, repository_jobs FROM account_limits
WHERE account_id = @account_id ORDER BY platform FOR UPDATE;

-- name: LockInstallation :exec
-- What is changed by one transaction at a time: rows cannot be locked that are not there yet, and of two events that are the first to name
-- an account one would fail at the installation's unique index, whatever ON CONFLICT says of the other.
SELECT pg_advisory_xact_lock(hashtextextended('bullpen.installation', sqlc.arg(installation_id)::bigint));

-- name: LockInstallationLimits :many
-- CLAIM-5: before an installation is changed, no batch is under way for its account, or for one that had it before. Whoever
-- holds these rows has every batch see what it did.
SELECT l.account_id FROM account_limits l
WHERE l.account_id = ANY (ARRAY(SELECT a.id FROM accounts a WHERE a.installation_id = @installation_id) || @account_id::bigint)
ORDER BY l.account_id, l.platform FOR UPDATE OF l;

-- name: LockAccount :one
SELECT * FROM accounts WHERE id = @id FOR NO KEY UPDATE;

-- name: AccountsByLogin :many
-- Logins are compared as GitHub does. A rename may leave one login with two accounts for a while.
SELECT id, deleted_at FROM accounts WHERE lower(login) = lower(@login::text) ORDER BY deleted_at IS NOT NULL, id;

-- name: AccountPage :many
SELECT * FROM accounts
WHERE (lower(login), id) > (lower(@after_login::text), @after_id::bigint) AND (@deleted::boolean OR deleted_at IS NULL)
ORDER BY lower(login), id LIMIT @most;

-- name: AccountByID :one
SELECT * FROM accounts WHERE id = @id;

-- name: LimitsOf :many
SELECT * FROM account_limits WHERE account_id = ANY (@accounts::bigint[]) ORDER BY account_id, platform;

-- name: QueuedOf :many
-- Counted no further than asked: not the backlog decides what it costs. Each lane separately, in the order of the queue's index: joined as one,
-- the planner may read the whole queue again for every account.
SELECT a.id::bigint AS account_id,
    (SELECT least(coalesce(sum(lane.queued), 0), @most::int) FROM job_lanes l CROSS JOIN LATERAL (
        SELECT count(*) AS queued FROM (
            SELECT 1 FROM workflow_jobs w
            WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
            ORDER BY w.queued_at, w.id LIMIT @most) q) lane
        WHERE l.account_id = a.id)::bigint AS queued,
    (SELECT count(*) FROM (
        SELECT 1 FROM workflow_jobs w WHERE w.account_id = a.id AND w.state = 'queued' AND w.held <> '' LIMIT @most) h)::bigint AS held
FROM unnest(@accounts::bigint[]) AS a (id);

-- name: PauseAccount :exec
UPDATE accounts SET paused = @paused, paused_reason = @reason, version = version + 1, updated_at = @now WHERE id = @id;

-- name: TouchAccount :exec
UPDATE accounts SET version = version + 1, updated_at = @now WHERE id = @id;

-- name: LiveClaimsOfAccount :one
SELECT count(*) FROM runner_claims WHERE account_id = @account_id AND state IN ('claimed', 'minted', 'executing');

-- name: BuryJobsOfAccount :exec
-- CLAIM-4: what was queued or waiting ends for good, whatever arrives late.
WITH ended AS (
    UPDATE workflow_jobs SET state = 'stale', conclusion = 'account_deleted', completed_at = @now, updated_at = @now
    WHERE account_id = @account_id AND state IN ('queued', 'waiting')
    RETURNING id
)
INSERT INTO job_tombstones (job_id, conclusion, completed_at)
SELECT ended.id, 'account_deleted', @now FROM ended ON CONFLICT DO NOTHING;

-- name: DeleteLimits :exec
DELETE FROM account_limits WHERE account_id = @account_id;

-- name: DeleteLanes :exec
DELETE FROM job_lanes WHERE account_id = @account_id;

-- name: MarkAccountDeleted :exec
UPDATE accounts SET deleted_at = @now, version = version + 1, updated_at = @now WHERE id = @id;

-- name: PurgeSessions :exec
DELETE FROM runner_sessions WHERE account_id = @account_id;

-- name: PurgeRegistrations :exec
DELETE FROM runner_registrations WHERE account_id = @account_id AND state = 'gone';

-- name: DisownClaims :exec
-- EXCL-1: the row of a pod that may still exist stays, and forgets only whose it was.
UPDATE runner_claims SET account_id = NULL WHERE account_id = @account_id AND state IN ('spent', 'retired');

-- name: BuryAllJobsOfAccount :exec
-- CLAIM-4: a purged job's row goes, its tombstone does not.
INSERT INTO job_tombstones (job_id, conclusion, completed_at)
SELECT w.id, w.conclusion, coalesce(w.completed_at, @now) AS completed_at FROM workflow_jobs w WHERE w.account_id = @account_id
ON CONFLICT DO NOTHING;

-- name: PurgeAccount :exec
DELETE FROM accounts WHERE id = @id;

-- name: ForgetDeletedAccounts :execrows
-- Accounts that an administrator deleted, once retention has taken the last of their history.
DELETE FROM accounts WHERE accounts.id IN (
    SELECT a.id FROM accounts a WHERE a.deleted_at < @before::timestamptz
      AND (SELECT s.account_id FROM runner_sessions s WHERE s.account_id >= a.id ORDER BY s.account_id LIMIT 1) IS DISTINCT FROM a.id -- a probe comes first
      AND (SELECT 1 FROM runner_claims c WHERE c.account_id = a.id LIMIT 1) IS NULL
      AND (SELECT 1 FROM workflow_jobs w WHERE w.account_id = a.id LIMIT 1) IS NULL
    LIMIT @most);

-- name: InstalledAccounts :many
SELECT * FROM accounts WHERE installation_id IS NOT NULL ORDER BY id;

-- name: MissInstallation :exec
UPDATE accounts SET installation_missing_at = @now WHERE id = @id;

-- name: SeeInstallations :exec
UPDATE accounts SET installation_missing_at = NULL WHERE id = ANY (@ids::bigint[]) AND installation_missing_at IS NOT NULL;

-- name: RemoveRepository :exec
INSERT INTO removed_repositories (account_id, repository, removed_at) VALUES (@account_id, @repository, @now)
ON CONFLICT DO NOTHING;

-- name: RestoreRepository :exec
DELETE FROM removed_repositories WHERE account_id = @account_id AND repository = @repository;

-- name: RestoreRepositories :many
-- A new installation states its repositories again.
DELETE FROM removed_repositories WHERE account_id = @account_id RETURNING repository;

-- name: NotifyAccount :exec
SELECT pg_notify('bullpen_account', @account_id::text);

-- name: ReadableAccounts :many
-- Whose repositories can be listed.
SELECT * FROM accounts WHERE installation_id IS NOT NULL AND NOT suspended AND deleted_at IS NULL ORDER BY id;

-- name: RepositoriesOfAccount :many
SELECT r.name, r.repository_id, r.missing_at FROM repositories r WHERE r.account_id = @account_id ORDER BY r.name;

-- name: RemovedOfAccount :many
SELECT repository, removed_at FROM removed_repositories WHERE account_id = @account_id ORDER BY repository;

-- name: MissRepositories :exec
UPDATE repositories SET missing_at = @now WHERE account_id = @account_id AND name = ANY (@names::text[]) AND missing_at IS NULL;

-- name: SeeRepositories :exec
UPDATE repositories SET missing_at = NULL WHERE account_id = @account_id AND name = ANY (@names::text[]) AND missing_at IS NOT NULL;

-- name: NameRepository :exec
-- GitHub's list says what it is called now.
INSERT INTO repositories (name, account_id, seen_at, swept_at, repository_id, named_at)
VALUES (@name, @account_id, @now, '-infinity', @repository_id, @now)
ON CONFLICT (name) DO UPDATE SET account_id = excluded.account_id, repository_id = excluded.repository_id,
    named_at = greatest(repositories.named_at, excluded.named_at), missing_at = NULL;
