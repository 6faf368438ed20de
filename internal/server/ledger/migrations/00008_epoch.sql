-- +goose Up
SET LOCAL lock_timeout = '5s';

-- CLAIM-17: where this database stands in the life of the installation. The lineage is drawn when the database is made, the
-- epoch is raised every few seconds, and both are copied to Kubernetes: a database behind its copy has lost something.
CREATE TABLE ledger_epoch (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    lineage      text NOT NULL CHECK (lineage <> ''),
    epoch        bigint NOT NULL CHECK (epoch > 0),
    beaten_at    timestamptz NOT NULL,
    copied       boolean NOT NULL DEFAULT false,
    -- The hold after a restore: nothing is dispatched or granted until claims are rebuilt. All times are this database's.
    hold_until   timestamptz,
    over_lineage text NOT NULL DEFAULT '', -- the highest that was known of the former database
    over_epoch   bigint NOT NULL DEFAULT 0,
    reason       text NOT NULL DEFAULT '',
    lost_since   timestamptz,              -- what was committed later may be lost; null: everything
    rebuilding_until timestamptz,          -- a replica is at it
    rebuilt_at   timestamptz,              -- when the last rebuilding that succeeded began
    doubts       bigint NOT NULL DEFAULT 0
);
INSERT INTO ledger_epoch (lineage, epoch, beaten_at) VALUES (gen_random_uuid()::text, 1, now());

-- Called inside the statements that claim, take over, mint and retire: they fail, with all that their transactions did, when
-- the database is held, or is behind what the caller knows. It costs no round trip. An empty lineage asks for nothing.
-- +goose StatementBegin
CREATE FUNCTION require_epoch(known_lineage text, known_epoch bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF known_lineage <> '' AND NOT EXISTS (
        SELECT 1 FROM ledger_epoch e
        WHERE e.lineage = known_lineage AND e.epoch >= known_epoch AND e.hold_until IS NULL)
    THEN
        RAISE EXCEPTION 'the ledger is held, or older than what this server knows' USING ERRCODE = 'BP017';
    END IF;
    RETURN true;
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP FUNCTION require_epoch;
DROP TABLE ledger_epoch;
