-- name: AccountsOfLogins :many
-- Those whose jobs GitHub reports. The condition on the installation is written so that no index of those answers it.
SELECT id, lower(login)::text AS login FROM accounts
WHERE lower(login) = ANY (@logins::text[]) AND coalesce(installation_id, 0) <> 0 AND NOT suspended AND deleted_at IS NULL
ORDER BY lower(login), id;

-- name: LabelSetsOfLogins :many
-- Those of the accounts' own lanes.
SELECT DISTINCT lower(a.login)::text AS login, l.label_key FROM accounts a JOIN job_lanes l ON l.account_id = a.id
WHERE lower(a.login) = ANY (@logins::text[]) AND coalesce(a.installation_id, 0) <> 0 AND NOT a.suspended AND a.deleted_at IS NULL
ORDER BY 1, 2;

-- name: RepositoriesTaken :many
-- Which of these repositories GitHub has taken from their installations.
SELECT account_id, lower(repository)::text AS repository FROM removed_repositories
WHERE account_id = ANY (@accounts::bigint[]) AND lower(repository) = ANY (@repositories::text[]);

-- name: DemandOfAccounts :many
-- No lane is read further than it is asked to, and no other lane is read. A job that is held because its repository is at its cap in
-- the pools waits for a runner all the same; one whose repository was removed from the installation is not reported any more.
SELECT l.scope::bigint AS scope, j.id::bigint AS id, j.repository::text AS repository, j.state::text AS state,
    j.runner_name::text AS runner_name, j.queued_at::timestamptz AS queued_at, j.updated_at::timestamptz AS updated_at
FROM (SELECT unnest(@scopes::bigint[]) AS scope, unnest(@label_keys::text[]) AS label_key, unnest(@accounts::bigint[]) AS account_id,
    unnest(@most::bigint[]) AS most) l
CROSS JOIN LATERAL (
    (SELECT q.id, q.repository, q.state, q.runner_name, q.queued_at, q.updated_at FROM workflow_jobs q
        WHERE q.label_key = l.label_key AND q.account_id = l.account_id AND q.state = 'queued' AND q.held = ''
        ORDER BY q.queued_at, q.id LIMIT l.most)
    UNION ALL
    (SELECT h.id, h.repository, h.state, h.runner_name, h.queued_at, h.updated_at FROM workflow_jobs h
        WHERE h.label_key = l.label_key AND h.account_id = l.account_id AND h.state = 'queued' AND h.held <> '' AND h.held = 'repository_limit'
        LIMIT l.most)
    UNION ALL
    (SELECT x.id, x.repository, x.state, x.runner_name, x.queued_at, x.updated_at FROM workflow_jobs x
        WHERE x.label_key = l.label_key AND x.account_id = l.account_id AND x.state = 'executing'
        ORDER BY x.queued_at, x.id LIMIT l.most)
) j;

-- name: DemandOfRepositories :many
-- The same of single repositories, in lower case.
SELECT l.scope::bigint AS scope, j.id::bigint AS id, j.repository::text AS repository, j.state::text AS state,
    j.runner_name::text AS runner_name, j.queued_at::timestamptz AS queued_at, j.updated_at::timestamptz AS updated_at
FROM (SELECT unnest(@scopes::bigint[]) AS scope, unnest(@label_keys::text[]) AS label_key, unnest(@accounts::bigint[]) AS account_id,
    unnest(@repositories::text[]) AS repository, unnest(@most::bigint[]) AS most) l
CROSS JOIN LATERAL (
    (SELECT q.id, q.repository, q.state, q.runner_name, q.queued_at, q.updated_at FROM workflow_jobs q
        WHERE q.label_key = l.label_key AND q.account_id = l.account_id AND lower(q.repository) = l.repository AND q.state = 'queued'
        ORDER BY q.queued_at, q.id LIMIT l.most)
    UNION ALL
    (SELECT x.id, x.repository, x.state, x.runner_name, x.queued_at, x.updated_at FROM workflow_jobs x
        WHERE x.label_key = l.label_key AND x.account_id = l.account_id AND lower(x.repository) = l.repository AND x.state = 'executing'
        ORDER BY x.queued_at, x.id LIMIT l.most)
) j;

-- name: JobsSeen :many
-- What the ledger knows of jobs that were seen at GitHub. A tombstone outlives its job's row.
SELECT w.id, w.state, w.conclusion, w.label_key FROM workflow_jobs w WHERE w.id = ANY (@ids::bigint[])
UNION ALL
SELECT t.job_id, 'completed', t.conclusion, '' FROM job_tombstones t WHERE t.job_id = ANY (@ids::bigint[])
  AND NOT EXISTS (SELECT 1 FROM workflow_jobs g WHERE g.id = t.job_id);
