-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Accounts whose webhooks arrive without the App being installed there: those of a webhook that is set on a repository or an
-- organization. At most a hundred, so that no sender fills it.
CREATE TABLE uninstalled_owners (
    account_id bigint PRIMARY KEY, -- no reference: it is no account of ours
    login      text NOT NULL,
    repository text NOT NULL,      -- of the latest event
    seen_at    timestamptz NOT NULL
);

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE uninstalled_owners;
