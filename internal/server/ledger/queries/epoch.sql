-- name: ReadEpoch :one
SELECT *, now()::timestamptz AS now FROM ledger_epoch;

-- name: BeatEpoch :execrows
-- One replica of all raises the epoch, and only of a database that is neither held nor behind what it knows.
UPDATE ledger_epoch SET epoch = epoch + 1, beaten_at = now()
WHERE lineage = @lineage AND epoch >= @epoch AND hold_until IS NULL
  AND (beaten_at <= now() - make_interval(secs => @every::float8) OR beaten_at > now()); -- a clock that was set back stops nothing

-- name: EpochCopied :exec
UPDATE ledger_epoch SET copied = true WHERE lineage = @lineage AND NOT copied;

-- name: BeginHold :execrows
-- Whoever sees it first writes it down for all; a hold over as much, or more, stands, unless the clock was set back since it began. The minute is
-- epoch.clockSlack: now() is when this transaction began, which may be before the hold that it has waited for.
UPDATE ledger_epoch SET hold_until = now() + make_interval(secs => @hold::float8), over_lineage = @over_lineage, over_epoch = @over_epoch,
    reason = @reason, lost_since = sqlc.narg(lost_since), rebuilt_at = NULL, rebuilding_until = NULL, rebuild_turn = '', doubts = 0
WHERE lineage = @lineage AND epoch = @epoch
  AND (hold_until IS NULL OR over_lineage <> @over_lineage OR over_epoch < @over_epoch
    OR hold_until > now() + make_interval(secs => @hold::float8) + interval '1 minute');

-- name: BeginRebuild :one
-- One replica at a time, for so long unless it renews that; and not again at once. Whoever had the turn before has it no more. A time that is
-- later than it can be is from before the clock was set back, and counts as none. For the minute see BeginHold.
UPDATE ledger_epoch SET rebuilding_until = now() + make_interval(secs => @lease::float8), rebuild_turn = gen_random_uuid()::text
WHERE hold_until IS NOT NULL AND (rebuilding_until IS NULL OR rebuilding_until <= now()
    OR rebuilding_until > now() + make_interval(secs => @lease::float8) + interval '1 minute')
  AND (rebuilt_at IS NULL OR rebuilt_at <= now() - make_interval(secs => @every::float8) OR rebuilt_at > now())
RETURNING rebuild_turn;

-- name: RenewRebuild :execrows
UPDATE ledger_epoch SET rebuilding_until = now() + make_interval(secs => @lease::float8)
WHERE hold_until IS NOT NULL AND rebuild_turn = @turn AND @turn <> '';

-- name: LockRebuildTurn :one
-- CLAIM-17: first in each transaction of a rebuilding. Until it has committed no replica ends the hold, and no other takes the turn.
SELECT true FROM ledger_epoch WHERE hold_until IS NOT NULL AND rebuild_turn = @turn AND @turn <> '' FOR SHARE;

-- name: EndRebuild :execrows
-- began is null when it failed. Whoever has lost the turn proves nothing.
UPDATE ledger_epoch SET rebuilding_until = NULL, rebuild_turn = '', rebuilt_at = coalesce(sqlc.narg(began), rebuilt_at),
    doubts = CASE WHEN sqlc.narg(began)::timestamptz IS NULL THEN doubts ELSE @doubts::bigint END
WHERE hold_until IS NOT NULL AND rebuild_turn = @turn AND @turn <> '';

-- name: EndHold :execrows
-- The epoch jumps ahead of everything that any replica has seen, in the lineage that all know.
UPDATE ledger_epoch SET epoch = greatest(epoch, over_epoch) + 1000, beaten_at = now(), hold_until = NULL, reason = '', rebuild_turn = '',
    lineage = CASE WHEN over_lineage = '' THEN lineage ELSE over_lineage END
WHERE hold_until <= now() AND rebuilt_at <= now() AND over_lineage = @over_lineage AND over_epoch = @over_epoch;

-- name: AnyRowsOf :many
-- Which of these pods the ledger knows.
SELECT pod_uid FROM runner_claims WHERE pod_uid = ANY (@pod_uids::text[]);
