-- name: UpsertAccount :exec
-- An installation event, or any event that names an account nobody told us about.
INSERT INTO accounts (id, login, kind, installation_id, suspended, created_at, updated_at)
VALUES (@id, @login, @kind, @installation_id, @suspended, @now, @now)
ON CONFLICT (id) DO UPDATE SET login = excluded.login, kind = excluded.kind,
    installation_id = excluded.installation_id, suspended = excluded.suspended, updated_at = excluded.updated_at;

-- name: EnsureAccount :exec
-- Keeps what an installation event said; only fills what is missing.
INSERT INTO accounts (id, login, kind, installation_id, created_at, updated_at)
VALUES (@id, @login, @kind, @installation_id, @now, @now)
ON CONFLICT (id) DO UPDATE SET login = excluded.login, installation_id = excluded.installation_id,
    updated_at = excluded.updated_at
WHERE accounts.installation_id IS DISTINCT FROM excluded.installation_id OR accounts.login <> excluded.login;

-- name: ReleaseInstallation :exec
-- An installation id belongs to one account; a re-created organization may bring it along under a new id.
UPDATE accounts SET installation_id = NULL, updated_at = @now
WHERE installation_id = @installation_id AND id <> @id;

-- name: EnsureLimits :exec
INSERT INTO account_limits (account_id, platform, milli_cpu, memory_mb, jobs)
VALUES (@account_id, @platform, @milli_cpu, @memory_mb, @jobs)
ON CONFLICT (account_id, platform) DO NOTHING;

-- name: SetLimits :exec
INSERT INTO account_limits (account_id, platform, milli_cpu, memory_mb, jobs)
VALUES (@account_id, @platform, @milli_cpu, @memory_mb, @jobs)
ON CONFLICT (account_id, platform) DO UPDATE
SET milli_cpu = excluded.milli_cpu, memory_mb = excluded.memory_mb, jobs = excluded.jobs;

-- name: RemoveInstallation :exec
-- Only that installation: its end may be told after the next one's beginning.
UPDATE accounts SET installation_id = NULL, updated_at = @now WHERE id = @id AND installation_id = @installation_id;

-- name: Account :one
SELECT id, login, kind, installation_id, suspended FROM accounts WHERE id = @id;

-- name: AccountIsKnown :one
SELECT EXISTS (SELECT 1 FROM accounts WHERE id = @id AND login = @login
    AND installation_id = sqlc.arg(installation_id)::bigint);
