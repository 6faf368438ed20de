-- name: RecoveryClaims :many
-- Rows that are named, and with sweep those live ones that look wrong: their pod is not listed, or was not, or nothing has
-- happened to them for long. Who is named is found by name, and who is listed is hashed: a pass reads each claim once.
WITH wanted AS (
    SELECT n.pod_uid FROM runner_claims n WHERE n.pod_uid = ANY (@named::text[]) AND n.pod_uid > @after
    UNION
    (SELECT w.pod_uid FROM runner_claims w
     WHERE @sweep::boolean AND w.pod_uid > @after AND (w.state = 'spent' AND w.proof = ''
         OR w.state IN ('claimed', 'minted', 'executing') AND (w.missing_since IS NOT NULL OR w.pod_uid NOT IN (SELECT unnest(@listed::text[]))
         OR greatest(w.claimed_at, w.minted_at, w.acknowledged_at, w.executing_at) <= @long_ago AND (w.look_at IS NULL OR w.look_at <= @now)))
     ORDER BY w.pod_uid LIMIT @most)
)
SELECT c.pod_uid, c.namespace, c.pod_name, c.pool, c.state, c.generation, c.lease_until, c.account_id, c.label_key, c.job_id,
    c.runner_name, c.acknowledged_at, c.executing_at, c.ended_at, c.proof, c.missing_since, c.look_at,
    greatest(c.claimed_at, c.minted_at, c.acknowledged_at, c.executing_at)::timestamptz AS moved_at,
    coalesce(a.login, '')::text AS login, coalesce(a.kind, '')::text AS kind, a.installation_id,
    coalesce(j.repository, '')::text AS repository, coalesce(j.repository_id, 0)::bigint AS repository_id,
    coalesce(j.state, '')::text AS job_state,
    -- A LIMIT, or the planner takes the chance to read every tombstone there is.
    coalesce((SELECT true FROM job_tombstones t WHERE t.job_id = c.job_id LIMIT 1), false)::boolean AS buried,
    EXISTS (SELECT 1 FROM runner_registrations r WHERE r.pod_uid = c.pod_uid AND r.state <> 'gone') AS open,
    coalesce((SELECT max(r.gone_at) FROM runner_registrations r WHERE r.pod_uid = c.pod_uid), 'epoch')::timestamptz AS gone_at,
    s.ended_at AS stopped_at
FROM (SELECT wanted.pod_uid FROM wanted ORDER BY wanted.pod_uid LIMIT @most) o
JOIN runner_claims c ON c.pod_uid = o.pod_uid
LEFT JOIN accounts a ON a.id = c.account_id
LEFT JOIN LATERAL (SELECT w.repository, w.repository_id, w.state FROM workflow_jobs w WHERE w.id = c.job_id LIMIT 1) j ON true
LEFT JOIN LATERAL (SELECT u.ended_at FROM runner_sessions u WHERE u.pod_uid = c.pod_uid LIMIT 1) s ON true
ORDER BY c.pod_uid;

-- name: UnownedPods :many
-- Of these pods, those without a claim, and of which nothing is proven yet.
SELECT n.uid::text AS pod_uid FROM unnest(@pod_uids::text[]) n (uid)
WHERE NOT EXISTS (SELECT 1 FROM runner_claims c
    WHERE c.pod_uid = n.uid AND (c.state IN ('claimed', 'minted', 'executing') OR c.proof <> ''));

-- name: NotePodsMissing :exec
UPDATE runner_claims SET missing_since = @now WHERE pod_uid = ANY (@pod_uids::text[]) AND missing_since IS NULL;

-- name: NotePodsSeen :exec
-- RECV-4: a reappearance resets the clock.
UPDATE runner_claims SET missing_since = NULL WHERE pod_uid = ANY (@pod_uids::text[]) AND missing_since IS NOT NULL;

-- name: LookAtClaimAgain :exec
UPDATE runner_claims SET look_at = @look_at WHERE pod_uid = @pod_uid AND generation = @generation;

-- name: LookAtJobAgain :exec
UPDATE workflow_jobs SET look_at = @look_at WHERE id = @id;

-- name: StrayRegistrations :many
-- Pods that are not listed and have no row, of which a registration is not known to be gone. A row is forgotten only when
-- its UID is proven gone.
SELECT r.pod_uid, min(r.created_at)::timestamptz AS created_at, min(r.account_id)::bigint AS account_id,
    min(a.login)::text AS login, min(a.kind)::text AS kind, coalesce(min(a.installation_id), 0)::bigint AS installation_id
FROM runner_registrations r JOIN accounts a ON a.id = r.account_id
WHERE r.state <> 'gone' AND r.created_at <= @long_ago AND r.pod_uid > @after
  AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.pod_uid = r.pod_uid)
  AND r.pod_uid NOT IN (SELECT unnest(@listed::text[])) -- which is hashed
GROUP BY r.pod_uid ORDER BY r.pod_uid LIMIT @most;

-- name: DoubtRegistrations :exec
-- Of pods that have no row any more: no replica is working on them.
UPDATE runner_registrations SET state = 'intended', doubtful = false WHERE runner_name = ANY (ARRAY(
    SELECT r.runner_name FROM runner_registrations r
    WHERE r.doubtful AND r.gone_at <= @long_ago
      AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.pod_uid = r.pod_uid)
    ORDER BY r.gone_at LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: StraySessions :many
-- Sessions that are open although their pod is not listed and has no row.
SELECT s.pod_uid, s.started_at FROM runner_sessions s
WHERE s.ended_at IS NULL AND s.pod_uid > @after
  AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.pod_uid = s.pod_uid)
  AND s.pod_uid NOT IN (SELECT unnest(@listed::text[])) -- which is hashed
ORDER BY s.pod_uid LIMIT @most;

-- name: CloseStraySession :execrows
-- Nobody knows when it ended: its job's end is the least that is true.
UPDATE runner_sessions s SET ended_at = coalesce(s.job_ended_at, @now::timestamptz), job_ended_at = CASE
    WHEN s.job_started_at IS NULL THEN s.job_ended_at ELSE coalesce(s.job_ended_at, @now::timestamptz) END
WHERE s.pod_uid = @pod_uid AND s.ended_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM runner_claims c WHERE c.pod_uid = s.pod_uid);

-- name: SessionReleased :exec
-- Of a claim that ended without GitHub's word on its job.
UPDATE runner_sessions SET job_ended_at = @now WHERE pod_uid = @pod_uid AND job_started_at IS NOT NULL AND job_ended_at IS NULL;

-- name: StrayJobs :many
-- Jobs whose rows say that a claim has them while none does: at once of those that a claim moves with its own row, and of
-- those that run when they were silent for long. Each state separately and as a span of one, so that the index of what has not
-- ended has the order, and no other.
SELECT j.id, j.account_id, j.repository, j.repository_id, j.state, j.label_key, j.updated_at, j.runner_name, a.login, a.kind, a.installation_id
FROM unnest(ARRAY['claimed', 'minted', 'executing']) AS s (state)
CROSS JOIN LATERAL (
    SELECT w.id, w.account_id, w.repository, w.repository_id, w.state, w.label_key, w.updated_at, w.runner_name FROM workflow_jobs w
    WHERE w.state <= s.state AND (w.state, w.id) > (s.state, @after::bigint) AND w.state NOT IN ('completed', 'cancelled', 'stale')
      AND (w.state <> 'executing' OR w.updated_at <= @long_ago AND (w.look_at IS NULL OR w.look_at <= @now))
      AND (SELECT c.pod_uid FROM runner_claims c WHERE c.job_id = w.id AND c.state IN ('claimed', 'minted', 'executing') LIMIT 1) IS NULL
    ORDER BY w.state, w.id LIMIT @most) j
JOIN accounts a ON a.id = j.account_id
ORDER BY j.id LIMIT @most;

-- name: ReturnJob :exec
-- GitHub says that it waits for a runner again: what was known of its start is void.
UPDATE workflow_jobs SET runner_name = '', started_at = NULL, look_at = NULL WHERE id = @id AND state || '' = 'queued';

-- name: NoteSightings :many
-- In one order, so that a pass and a check of one pod do not wait for each other.
INSERT INTO pod_sightings AS s (pod_uid, shown, since)
SELECT l.uid, l.shown, @now FROM (SELECT unnest(@pod_uids::text[]) AS uid, unnest(@shown::text[]) AS shown) l ORDER BY l.uid
ON CONFLICT (pod_uid) DO UPDATE SET shown = excluded.shown,
    since = CASE WHEN s.shown = excluded.shown THEN least(s.since, excluded.since) ELSE excluded.since END
RETURNING s.pod_uid, s.since;

-- name: ForgetSightings :exec
DELETE FROM pod_sightings WHERE pod_uid <> ALL (@pod_uids::text[]);
