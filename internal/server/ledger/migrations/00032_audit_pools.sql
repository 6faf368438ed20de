-- +goose Up
SET LOCAL lock_timeout = '5s';

-- The person behind a ServiceAccount's token, and changes of pools in the cluster.
ALTER TABLE audit_events
    ADD COLUMN requester text NOT NULL DEFAULT '',      -- the user, as verified by the cluster
    ADD COLUMN stated text NOT NULL DEFAULT '',         -- the user, as stated by the client
    ADD COLUMN manager text NOT NULL DEFAULT '',        -- the field manager of a change in the cluster, as stated by the client
    ADD COLUMN pool_namespace text NOT NULL DEFAULT '',
    ADD COLUMN pool text NOT NULL DEFAULT '';

-- The spec of each pool whose changes are in the audit log up to that generation. A server that starts compares with it.
CREATE TABLE audited_pools (
    uid        text PRIMARY KEY,
    namespace  text NOT NULL,
    pool       text NOT NULL,
    generation bigint NOT NULL,
    spec       jsonb NOT NULL,
    changed_at timestamptz NOT NULL
);

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE audited_pools;
ALTER TABLE audit_events DROP COLUMN requester, DROP COLUMN stated, DROP COLUMN manager, DROP COLUMN pool_namespace, DROP COLUMN pool;
