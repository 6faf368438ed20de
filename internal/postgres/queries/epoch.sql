-- name: ReadEpoch :one
SELECT *, now()::timestamptz AS now FROM ledger_epoch;

-- name: BeatEpoch :execrows
-- One replica of all raises the epoch, and only of a database that is neither held nor behind what it knows.
UPDATE ledger_epoch SET epoch = epoch + 1, beaten_at = now()
WHERE lineage = @lineage AND epoch >= @epoch AND hold_until IS NULL
  AND beaten_at <= now() - make_interval(secs => @every::float8);

-- name: EpochCopied :exec
UPDATE ledger_epoch SET copied = true WHERE lineage = @lineage AND NOT copied;

-- name: BeginHold :execrows
-- Whoever sees it first writes it down for all; a hold over as much, or more, stands.
UPDATE ledger_epoch SET hold_until = now() + make_interval(secs => @hold::float8), over_lineage = @over_lineage, over_epoch = @over_epoch,
    reason = @reason, lost_since = sqlc.narg(lost_since), rebuilt_at = NULL, rebuilding_until = NULL, doubts = 0
WHERE lineage = @lineage AND epoch = @epoch
  AND (hold_until IS NULL OR over_lineage <> @over_lineage OR over_epoch < @over_epoch);

-- name: BeginRebuild :execrows
-- One replica at a time, for so long; and not again at once.
UPDATE ledger_epoch SET rebuilding_until = now() + make_interval(secs => @lease::float8)
WHERE hold_until IS NOT NULL AND (rebuilding_until IS NULL OR rebuilding_until <= now())
  AND (rebuilt_at IS NULL OR rebuilt_at <= now() - make_interval(secs => @every::float8));

-- name: EndRebuild :exec
-- began is null when it failed.
UPDATE ledger_epoch SET rebuilding_until = NULL, rebuilt_at = coalesce(sqlc.narg(began), rebuilt_at),
    doubts = CASE WHEN sqlc.narg(began)::timestamptz IS NULL THEN doubts ELSE @doubts::bigint END
WHERE hold_until IS NOT NULL;

-- name: EndHold :execrows
-- The epoch jumps ahead of everything that anybody has seen, in the lineage that everybody knows.
UPDATE ledger_epoch SET epoch = greatest(epoch, over_epoch) + 1000, beaten_at = now(), hold_until = NULL, reason = '',
    lineage = CASE WHEN over_lineage = '' THEN lineage ELSE over_lineage END
WHERE hold_until <= now() AND rebuilt_at IS NOT NULL AND over_lineage = @over_lineage AND over_epoch = @over_epoch;

-- name: AnyRowsOf :many
-- Which of these pods the ledger has ever heard of.
SELECT pod_uid FROM runner_claims WHERE pod_uid = ANY (@pod_uids::text[]);
