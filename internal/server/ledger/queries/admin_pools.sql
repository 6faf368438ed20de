-- name: RunnerClaims :many
-- By the primary key.
SELECT c.pod_uid, c.state, coalesce(a.login, '')::text AS login, coalesce(c.job_id, 0)::bigint AS job_id, c.runner_name, c.claimed_at
FROM runner_claims c LEFT JOIN accounts a ON a.id = c.account_id
WHERE c.pod_uid = ANY (@pod_uids::text[]);
