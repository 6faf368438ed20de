-- +goose Up
SET LOCAL lock_timeout = '5s';

-- CLAIM-17: who rebuilds has a turn, drawn anew for each, so that one who was away writes nothing once another has begun, the
-- hold is over, or another one has begun. Empty: nobody has.
ALTER TABLE ledger_epoch ADD COLUMN rebuild_turn text NOT NULL DEFAULT '';

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE ledger_epoch DROP COLUMN rebuild_turn;
