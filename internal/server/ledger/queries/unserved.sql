-- name: UnservedLanes :many
-- The label sets that have jobs queued and are none of these, the oldest first, each with the accounts of its oldest lanes. It reads lanes and no
-- job. No batch parks a lane that no pool serves; one that is parked at its limit has lost its pool since. Accounts without the App are left out;
-- those of suspended accounts are not: that no pool serves a job is so whether or not its account is suspended. The keys are hashed once, as an array of
-- a generic plan is not: each lane costs one probe, however many label sets pools serve.
SELECT s.label_key::text AS label_key, s.sets::bigint AS sets, s.lanes::bigint AS lanes, l.account_id::bigint AS account_id
FROM (
    SELECT w.label_key, min(w.head_at) AS head_at, count(*) AS lanes, count(*) OVER () AS sets
    FROM job_lanes w
    WHERE w.parked IN ('', 'limit') AND w.label_key NOT IN (SELECT unnest(@served::text[]))
    GROUP BY w.label_key
    ORDER BY min(w.head_at), w.label_key LIMIT sqlc.arg(most_sets)
) s
CROSS JOIN LATERAL (
    SELECT o.account_id, o.head_at FROM job_lanes o
    WHERE o.label_key = s.label_key AND o.parked IN ('', 'limit')
    ORDER BY o.head_at, o.account_id LIMIT sqlc.arg(max_lanes)
) l
CROSS JOIN LATERAL (
    SELECT a.id FROM accounts a
    WHERE a.id = l.account_id AND coalesce(a.installation_id, 0) <> 0 AND a.deleted_at IS NULL LIMIT 1
) a
ORDER BY s.head_at, s.label_key, l.head_at, l.account_id;
