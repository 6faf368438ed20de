-- name: FeedLane :one
-- A job was queued, or queued again. The version makes a concurrent parking of the lane void. An account with so many lanes gets no further one
-- (TEN-2), and none before the jobs that are held for one; most of 0: any number. Its lanes are counted only where one would be made. No row: the
-- lane was not fed. Otherwise it says whether jobs of the lane are held for their label set, for ReturnToLane.
INSERT INTO job_lanes (label_key, account_id, version, head_at)
SELECT @label_key, @account_id, 1, @queued_at
WHERE @most::bigint = 0
    OR (SELECT e.account_id FROM job_lanes e WHERE e.label_key = @label_key AND e.account_id = @account_id LIMIT 1) IS NOT NULL
    OR (SELECT h.id FROM workflow_jobs h WHERE h.account_id = @account_id AND h.state = 'queued' AND h.held = 'label_sets'
            ORDER BY h.queued_at, h.id LIMIT 1) IS NULL
        AND (SELECT count(*) FROM (SELECT 1 FROM job_lanes o WHERE o.account_id = @account_id LIMIT @most::bigint) few) < @most::bigint
ON CONFLICT (label_key, account_id) DO UPDATE SET parked = '', version = job_lanes.version + 1,
    head_at = CASE WHEN job_lanes.parked IN ('empty', 'held') THEN excluded.head_at
        ELSE least(job_lanes.head_at, excluded.head_at) END
RETURNING ((SELECT h.id FROM workflow_jobs h
    WHERE h.label_key = @label_key AND h.account_id = @account_id AND h.state = 'queued' AND h.held = 'label_sets'
    ORDER BY h.queued_at, h.id LIMIT 1) IS NOT NULL)::boolean AS holds;

-- name: LanesOfAccount :one
SELECT count(*) FROM (SELECT 1 FROM job_lanes o WHERE o.account_id = @account_id LIMIT @most::bigint) few;

-- name: EvictLanes :execrows
-- As PruneLanes, earlier, and of an account that has as many lanes as it may have: one without a job keeps no job out (TEN-2). At most all lanes of
-- the account are read: many may be parked as empty whose jobs run elsewhere, and they hide no other.
DELETE FROM job_lanes WHERE ctid = ANY (ARRAY(
    SELECT i.ctid FROM job_lanes i
    WHERE i.account_id = @account_id AND i.parked || '' = 'empty' AND i.running = 0 -- by the account's index, and not that of all idle lanes
      AND (SELECT w.id FROM workflow_jobs w
        WHERE w.label_key = i.label_key AND w.account_id = i.account_id AND w.state = 'queued' AND w.held = ''
        ORDER BY w.queued_at, w.id LIMIT 1) IS NULL
      AND (SELECT h.id FROM workflow_jobs h
        WHERE h.label_key = i.label_key AND h.account_id = i.account_id AND h.state = 'queued' AND h.held <> '' LIMIT 1) IS NULL
      AND (SELECT x.id FROM workflow_jobs x
        WHERE x.label_key = i.label_key AND x.account_id = i.account_id AND x.state = 'executing'
        ORDER BY x.queued_at, x.id LIMIT 1) IS NULL
    LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: ParkIfEmpty :exec
-- Behind LockLanes, so that it sees the job of a transaction that has fed one of the lanes: no batch took a job out of them. In a lane that no pool
-- serves nothing else would notice that it is empty (TEN-2).
UPDATE job_lanes l SET parked = 'empty', version = l.version + 1
FROM (SELECT unnest(@label_keys::text[]) AS label_key, unnest(@accounts::bigint[]) AS account_id) v
WHERE l.label_key = v.label_key AND l.account_id = v.account_id AND l.parked <> 'empty'
  AND (SELECT w.id FROM workflow_jobs w
    WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
    ORDER BY w.queued_at, w.id LIMIT 1) IS NULL
  AND (SELECT h.id FROM workflow_jobs h
    WHERE h.label_key = l.label_key AND h.account_id = l.account_id AND h.state = 'queued' AND h.held <> '' LIMIT 1) IS NULL;

-- name: LockRoom :exec
-- Before FreeRoom, whose lanes it can see only once the transaction that parks them has committed: a batch holds this lock from before it reads what the
-- account uses until it has parked what had no room (TEN-1).
SELECT 1 FROM account_limits WHERE account_id = @account_id AND platform = @platform FOR UPDATE;

-- name: FreeRoom :exec
-- Behind LockRoom. A claim of that lane has ended (or none: ''), and where its pod is gone too, what the account's limit has parked may
-- have room now (TEN-4). Other lanes are not touched, however many the account has (TEN-1).
WITH freed AS (
    SELECT f.label_key FROM job_lanes f
    WHERE f.account_id = @account_id AND f.label_key = ANY (ARRAY(
        SELECT p.label_key FROM job_lanes p WHERE p.account_id = @account_id AND p.parked = 'limit' AND @gone::boolean) || @label_key::text)
    ORDER BY f.label_key FOR UPDATE -- in one order, so that two claims that end cannot wait for each other
)
UPDATE job_lanes l SET parked = CASE WHEN l.parked = 'limit' AND @gone::boolean THEN '' ELSE l.parked END, version = l.version + 1,
    running = greatest(0, l.running - CASE WHEN l.label_key = @label_key::text THEN 1 ELSE 0 END) -- a hint: it refuses nothing
FROM freed WHERE l.account_id = @account_id AND l.label_key = freed.label_key;

-- name: UnparkAccount :exec
WITH mine AS (
    SELECT m.label_key FROM job_lanes m WHERE m.account_id = @account_id ORDER BY m.label_key FOR UPDATE
)
UPDATE job_lanes l SET parked = CASE WHEN l.parked IN ('limit', 'suspended') THEN '' ELSE l.parked END,
    version = l.version + 1
FROM mine WHERE l.account_id = @account_id AND l.label_key = mine.label_key;

-- name: UnparkLabelSets :exec
WITH parked AS (
    SELECT p.label_key, p.account_id FROM job_lanes p WHERE p.label_key = ANY (@label_keys::text[]) AND p.parked = 'limit'
    ORDER BY p.account_id, p.label_key FOR UPDATE
)
UPDATE job_lanes l SET parked = '', version = l.version + 1
FROM parked WHERE l.label_key = parked.label_key AND l.account_id = parked.account_id;

-- name: ChargeLane :exec
INSERT INTO job_lanes (label_key, account_id, head_at, running, parked)
VALUES (@label_key, @account_id, @now, 1, 'empty')
ON CONFLICT (label_key, account_id) DO UPDATE SET running = job_lanes.running + 1;

-- name: CandidateLanesFIFO :many
-- The oldest lanes, and the oldest lane of each of as many accounts: an account whose lanes come before all others may have room for few of its
-- jobs, or for none (CLAIM-5).
WITH unparked AS (
    SELECT l.label_key, l.account_id, l.version, l.head_at, l.running
    FROM unnest(@label_keys::text[]) AS k (label_key)
    CROSS JOIN LATERAL (
        SELECT * FROM job_lanes
        WHERE job_lanes.label_key = k.label_key AND parked = '' AND job_lanes.account_id <> ALL (@excluded::bigint[])
        ORDER BY head_at, job_lanes.account_id LIMIT sqlc.arg(max_lanes)
    ) l
)
SELECT l.label_key, l.account_id, l.version, l.head_at, l.running,
    a.login, a.kind, a.installation_id, (a.suspended OR a.paused OR a.deleted_at IS NOT NULL)::boolean AS suspended
FROM (
    (SELECT u.* FROM unparked u ORDER BY u.head_at, u.account_id, u.label_key LIMIT sqlc.arg(max_lanes))
    UNION
    (SELECT o.* FROM (
        SELECT DISTINCT ON (f.account_id) f.* FROM unparked f ORDER BY f.account_id, f.head_at, f.label_key
    ) o ORDER BY o.head_at, o.account_id LIMIT sqlc.arg(max_lanes))
) l
CROSS JOIN LATERAL (SELECT * FROM accounts o WHERE o.id = l.account_id LIMIT 1) a
ORDER BY l.head_at, l.account_id, l.label_key;

-- name: CandidateLanesFair :many
-- As CandidateLanesFIFO, lanes with the fewest claims first.
WITH unparked AS (
    SELECT l.label_key, l.account_id, l.version, l.head_at, l.running
    FROM unnest(@label_keys::text[]) AS k (label_key)
    CROSS JOIN LATERAL (
        SELECT * FROM job_lanes
        WHERE job_lanes.label_key = k.label_key AND parked = '' AND job_lanes.account_id <> ALL (@excluded::bigint[])
        ORDER BY running, head_at, job_lanes.account_id LIMIT sqlc.arg(max_lanes)
    ) l
)
SELECT l.label_key, l.account_id, l.version, l.head_at, l.running,
    a.login, a.kind, a.installation_id, (a.suspended OR a.paused OR a.deleted_at IS NOT NULL)::boolean AS suspended
FROM (
    (SELECT u.* FROM unparked u ORDER BY u.running, u.head_at, u.account_id, u.label_key LIMIT sqlc.arg(max_lanes))
    UNION
    (SELECT o.* FROM (
        SELECT DISTINCT ON (f.account_id) f.* FROM unparked f ORDER BY f.account_id, f.running, f.head_at, f.label_key
    ) o ORDER BY o.running, o.head_at, o.account_id LIMIT sqlc.arg(max_lanes))
) l
CROSS JOIN LATERAL (SELECT * FROM accounts o WHERE o.id = l.account_id LIMIT 1) a
ORDER BY l.running, l.head_at, l.account_id, l.label_key;

-- name: UnparkedLanes :many
-- Behind LockLimits: further lanes of accounts without room, to be parked with those that the batch has read.
SELECT l.label_key, l.account_id, l.version
FROM unnest(@accounts::bigint[]) AS a (id)
CROSS JOIN unnest(@label_keys::text[]) AS k (label_key)
CROSS JOIN LATERAL (
    SELECT * FROM job_lanes o WHERE o.label_key = k.label_key AND o.account_id = a.id AND o.parked = '' LIMIT 1
) l
LIMIT @most;

-- name: LockLimits :many
-- A blocking lock in one order: skipping a locked account collapses when one account is hot.
SELECT account_id, milli_cpu, memory_mb, jobs, repository_jobs FROM account_limits
WHERE platform = @platform AND account_id = ANY (@accounts::bigint[])
ORDER BY account_id FOR UPDATE;

-- name: LiveUsage :many
-- CLAIM-5: a statement of its own after the locks, so that it sees what their former holders committed: claims, and that
-- the account was suspended. A pod counts until it has stopped or is gone, whatever has become of its job (TEN-4).
SELECT a.id, (a.suspended OR a.paused OR a.installation_id IS NULL OR a.deleted_at IS NOT NULL)::boolean AS suspended,
    u.jobs, u.milli_cpu, u.memory_mb
FROM accounts a
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, coalesce(sum(c.milli_cpu), 0)::bigint AS milli_cpu, coalesce(sum(c.memory_mb), 0)::bigint AS memory_mb
    FROM runner_claims c
    WHERE c.account_id = a.id AND c.platform = @platform
      AND (c.state IN ('claimed', 'minted', 'executing') OR c.state = 'spent' AND c.stopped_at IS NULL)
) u
WHERE a.id = ANY (@accounts::bigint[]);

-- name: PickJobs :many
-- The oldest queued jobs of each lane, at most so many a lane; a job that another replica is taking is skipped. The ids
-- come from an array because the planner takes that for short: of a LIMIT that it does not know it expects a tenth of all
-- jobs, and then reads the whole table to find them again.
SELECT j.id, j.account_id, j.label_key, j.queued_at, j.repository, j.repository_id,
    (SELECT s.labels FROM label_sets s WHERE s.label_key = j.label_key LIMIT 1)::text[] AS labels,
    doubt.refused::boolean AS refused, doubt.doubted::boolean AS doubted
FROM workflow_jobs j
CROSS JOIN LATERAL (
    SELECT count(*) > 0 AS doubted, coalesce(bool_or(r.job_id = 0 AND r.waits AND r.trying <> j.id
        AND r.pool = @pool AND r.namespace = @namespace), false) AS refused
    FROM refusals r WHERE r.account_id = j.account_id AND r.repository = j.repository
) doubt
WHERE j.state || '' = 'queued' AND j.held || '' = '' AND j.id = ANY (ARRAY(
    SELECT c.id
    FROM (SELECT unnest(@label_keys::text[]) AS label_key, unnest(@accounts::bigint[]) AS account_id,
        unnest(@allowed::bigint[]) AS allowed) l
    CROSS JOIN LATERAL (
        SELECT w.id FROM workflow_jobs w
        WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held = ''
        ORDER BY w.queued_at, w.id LIMIT l.allowed
    ) c
))
ORDER BY j.queued_at, j.id
FOR UPDATE OF j SKIP LOCKED;

-- name: LockLanes :exec
-- In the order of FreeRoom, before a batch counts and parks: a batch and a claim that ends cannot wait for each other.
SELECT 1 FROM job_lanes l
JOIN (SELECT unnest(@label_keys::text[]) AS label_key, unnest(@accounts::bigint[]) AS account_id) v
    ON l.label_key = v.label_key AND l.account_id = v.account_id
ORDER BY l.account_id, l.label_key FOR UPDATE OF l;

-- name: ClaimJobs :execrows
UPDATE workflow_jobs SET state = 'claimed', updated_at = @now
WHERE id = ANY (@ids::bigint[]) AND state || '' = 'queued';

-- name: SettleLanes :exec
-- After a batch, behind LockLanes: count what was claimed, let the hint move on to the oldest job that is left, and park what
-- gave less than it might have (a reason, or none). Parking is a compare-and-set on the version: a transaction that fed or freed the lane
-- in between wins. A lane that has nothing but held jobs is no empty one: they wait, and are counted. Each read of the queue ends
-- at its first row: a NOT EXISTS might be answered by reading all that is queued.
UPDATE job_lanes l SET running = l.running + v.claimed, head_at = coalesce(h.queued_at, l.head_at),
    parked = CASE
        WHEN v.reason = '' OR l.version <> v.version OR v.reason = 'empty' AND h.queued_at IS NOT NULL THEN l.parked
        WHEN v.reason = 'empty' AND (
            SELECT w.id FROM workflow_jobs w
            WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued' AND w.held <> '' LIMIT 1) IS NOT NULL
        THEN 'held' ELSE v.reason END
FROM (SELECT unnest(@label_keys::text[]) AS label_key, unnest(@accounts::bigint[]) AS account_id,
    unnest(@claimed::bigint[]) AS claimed, unnest(@versions::bigint[]) AS version, unnest(@reasons::text[]) AS reason) v
LEFT JOIN LATERAL (
    SELECT w.queued_at FROM workflow_jobs w
    WHERE w.label_key = v.label_key AND w.account_id = v.account_id AND w.state = 'queued' AND w.held = ''
    ORDER BY w.queued_at, w.id LIMIT 1) h ON true
WHERE l.label_key = v.label_key AND l.account_id = v.account_id;

-- name: UnparkUncharged :many
-- Lanes at the limit of an account that nothing is charged to: an event that would have freed them is not coming, or the limit is less than
-- one runner, and they are parked again.
UPDATE job_lanes l SET parked = '', version = l.version + 1
FROM (SELECT p.label_key, p.account_id FROM job_lanes p
    WHERE p.parked = 'limit' AND (SELECT c.pod_uid FROM runner_claims c
        WHERE c.account_id = p.account_id AND (c.state IN ('claimed', 'minted', 'executing') OR c.state = 'spent' AND c.stopped_at IS NULL)
        LIMIT 1) IS NULL
    ORDER BY p.account_id, p.label_key LIMIT @most FOR UPDATE) u
WHERE l.label_key = u.label_key AND l.account_id = u.account_id
RETURNING l.label_key;

-- name: NotifyWork :exec
SELECT pg_notify('bullpen_work', @label_key::text);

-- name: NotifyPods :exec
SELECT pg_notify('bullpen_pod', uid) FROM unnest(@pod_uids::text[]) AS uid;

-- name: NotifyAdoption :exec
SELECT pg_notify('bullpen_adoption', '');

-- name: DriftedLanes :many
-- Lanes whose count of live claims is not how many there are, as of one moment.
SELECT l.label_key, l.account_id FROM job_lanes l
WHERE NOT (l.parked = 'empty' AND l.running = 0) AND l.running <> (SELECT count(*) FROM runner_claims c
    WHERE c.account_id = l.account_id AND c.label_key = l.label_key AND c.state IN ('claimed', 'minted', 'executing'))
ORDER BY l.account_id, l.label_key LIMIT @most;

-- name: RecountLanes :execrows
-- Behind the lanes' locks, which each transaction that makes or ends a claim takes: its claims are counted, or it
-- counts them itself afterwards.
UPDATE job_lanes l SET running = n.live
FROM (SELECT v.label_key, v.account_id, (SELECT count(*) FROM runner_claims c
        WHERE c.account_id = v.account_id AND c.label_key = v.label_key AND c.state IN ('claimed', 'minted', 'executing')) AS live
    FROM (SELECT unnest(@label_keys::text[]) AS label_key, unnest(@accounts::bigint[]) AS account_id) v) n
WHERE l.label_key = n.label_key AND l.account_id = n.account_id AND l.running <> n.live;
