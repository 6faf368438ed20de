-- name: KeepTail :exec
-- A pool whose runners all die fills no disk: so many of an hour are kept, the first ones.
INSERT INTO runner_tails (pod_uid, namespace, pod_name, pool, ended_at, exit_code, reason, tail, cut)
SELECT sqlc.arg(pod_uid)::text, sqlc.arg(namespace)::text, sqlc.arg(pod_name)::text, sqlc.arg(pool)::text, sqlc.arg(ended_at)::timestamptz,
    sqlc.narg(exit_code)::integer, sqlc.arg(reason)::text, sqlc.arg(tail)::text, sqlc.arg(cut)::boolean
WHERE (SELECT count(*) FROM runner_tails t WHERE t.namespace = sqlc.arg(namespace)::text AND t.pool = sqlc.arg(pool)::text
    AND t.ended_at > sqlc.arg(since)::timestamptz) < sqlc.arg(most)::bigint
ON CONFLICT (pod_uid) DO NOTHING;

-- name: TailOfPod :one
-- Names are not used again, but by an owner whose names count up.
SELECT * FROM runner_tails WHERE namespace = @namespace AND pod_name = @pod_name ORDER BY ended_at DESC LIMIT 1;

-- name: PruneTails :execrows
DELETE FROM runner_tails WHERE pod_uid = ANY (ARRAY(
    SELECT t.pod_uid FROM runner_tails t WHERE t.ended_at < @before ORDER BY t.ended_at LIMIT @most FOR UPDATE SKIP LOCKED));
