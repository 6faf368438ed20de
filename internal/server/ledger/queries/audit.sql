-- name: InsertAudit :exec
INSERT INTO audit_events (at, actor, credential, requester, stated, manager, action, account_id, subject, pool_namespace, pool, before, after, reason)
VALUES (@at, @actor, @credential, @requester, @stated, @manager, @action, @account_id, @subject, @pool_namespace, @pool, @before, @after, @reason);

-- name: AuditTime :one
-- Where a page begins that continues another one.
SELECT at FROM audit_events WHERE id = @id;

-- name: AuditPage :many
SELECT * FROM audit_events WHERE (at, id) < (@before::timestamptz, @before_id::bigint) AND at >= @since
ORDER BY at DESC, id DESC LIMIT @most;

-- name: AuditPageOfAccount :many
SELECT * FROM audit_events WHERE account_id = @account_id AND (at, id) < (@before::timestamptz, @before_id::bigint) AND at >= @since
ORDER BY at DESC, id DESC LIMIT @most;

-- name: AuditPageOfSubject :many
-- Of an account that is no more.
SELECT * FROM audit_events
WHERE lower(subject) = lower(@subject::text) AND (at, id) < (@before::timestamptz, @before_id::bigint) AND at >= @since
ORDER BY at DESC, id DESC LIMIT @most;

-- name: AuditPageOfPool :many
SELECT * FROM audit_events
WHERE pool = @pool AND pool <> '' AND (@namespace::text = '' OR pool_namespace = @namespace)
  AND (at, id) < (@before::timestamptz, @before_id::bigint) AND at >= @since
ORDER BY at DESC, id DESC LIMIT @most;

-- name: InsertAuditedPool :execrows
-- A pool that is seen for the first time: its later changes are compared with it.
INSERT INTO audited_pools (uid, namespace, pool, generation, spec, changed_at)
VALUES (@uid, @namespace, @pool, @generation, @spec, @changed_at) ON CONFLICT DO NOTHING;

-- name: LockAuditedPool :one
SELECT generation, spec FROM audited_pools WHERE uid = @uid FOR UPDATE;

-- name: UpdateAuditedPool :exec
UPDATE audited_pools SET generation = @generation, spec = @spec, changed_at = @changed_at WHERE uid = @uid;

-- name: AuditedPools :many
-- Of the namespace: a server that starts learns what the audit log has.
SELECT uid, generation FROM audited_pools WHERE namespace = @namespace;

-- name: ForgetAuditedPools :execrows
-- Pools that were deleted. One that another server has just seen stays.
DELETE FROM audited_pools WHERE namespace = @namespace AND changed_at < @before AND uid <> ALL (@uids::text[]);
