-- name: NoteUninstalledOwner :execrows
-- TEN-10: of the owners that are new no more are noted than there is room for.
INSERT INTO uninstalled_owners (account_id, login, repository, seen_at)
SELECT sqlc.arg(account_id)::bigint, sqlc.arg(login)::text, sqlc.arg(repository)::text, sqlc.arg(now)::timestamptz
WHERE (SELECT count(*) FROM uninstalled_owners o WHERE o.account_id <> sqlc.arg(account_id)::bigint) < sqlc.arg(most)::bigint
ON CONFLICT (account_id) DO UPDATE SET login = excluded.login, repository = excluded.repository, seen_at = excluded.seen_at;

-- name: ForgetUninstalledOwners :execrows
DELETE FROM uninstalled_owners WHERE seen_at < sqlc.arg(before)::timestamptz;
