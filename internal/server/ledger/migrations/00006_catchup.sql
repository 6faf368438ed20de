-- +goose Up
SET LOCAL lock_timeout = '5s';

-- How far GitHub's list of deliveries has been read. It is read from its newest entry back to where the last look began, in
-- steps, so a look may be under way: cursor, top and floor are its.
CREATE TABLE delivery_position (
    singleton        boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    version          bigint NOT NULL DEFAULT 0,  -- taken anew by every write, tested by the next
    read_until       timestamptz,                -- every delivery before was looked at; null: none was
    cursor           text NOT NULL DEFAULT '',   -- where the look goes on; empty: none is under way
    top              timestamptz,                -- where the look began
    floor            timestamptz,                -- where it ends
    etag             text NOT NULL DEFAULT '',   -- of the newest page, as the look found it
    everything_since timestamptz                 -- since then a success that GitHub saw counts for nothing
);
INSERT INTO delivery_position DEFAULT VALUES;

-- Deliveries that the ledger lacks: each is asked for, less and less often, until it is settled.
CREATE TABLE delivery_asks (
    guid         text PRIMARY KEY,
    delivery_id  bigint NOT NULL, -- the newest attempt that was seen
    event        text NOT NULL,
    delivered_at timestamptz NOT NULL,
    attempts     bigint NOT NULL DEFAULT 0,
    next_at      timestamptz NOT NULL,
    settled_at   timestamptz -- recorded, or of no use: never asked for again
);
CREATE INDEX delivery_asks_open ON delivery_asks (next_at) WHERE settled_at IS NULL;
CREATE INDEX delivery_asks_delivered ON delivery_asks (delivered_at);

-- Repositories whose jobs were heard of, for the sweep of GitHub's queue; resume_* is where a sweep that ran out of its
-- budget goes on.
CREATE TABLE repositories (
    name          text PRIMARY KEY, -- owner/name
    account_id    bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    seen_at       timestamptz NOT NULL,
    swept_at      timestamptz NOT NULL,
    resume_status text NOT NULL DEFAULT '',
    resume_run    bigint NOT NULL DEFAULT 0
);
CREATE INDEX repositories_swept ON repositories (swept_at, name);
INSERT INTO repositories (name, account_id, seen_at, swept_at)
SELECT DISTINCT ON (repository) repository, account_id, updated_at, '-infinity' FROM workflow_jobs ORDER BY repository, updated_at DESC;

-- asked_at: when GitHub was last asked about a job that waits. confirmed_at: when GitHub last said that it rightly waits.
ALTER TABLE workflow_jobs
    ADD COLUMN asked_at timestamptz,
    ADD COLUMN confirmed_at timestamptz,
    ADD COLUMN rerun text NOT NULL DEFAULT '' CHECK (rerun IN ('', 'asked', 'refused', 'limit')),
    ADD COLUMN rerun_at timestamptz; -- when that was decided; while rerun is empty: when to look again
CREATE INDEX workflow_jobs_waiting_long ON workflow_jobs (coalesce(asked_at, queued_at), id) WHERE state IN ('queued', 'waiting');
CREATE INDEX workflow_jobs_waiting_since ON workflow_jobs (updated_at) WHERE state IN ('queued', 'waiting');
CREATE INDEX workflow_jobs_rerun ON workflow_jobs (run_id, name) WHERE rerun = 'asked';

-- When the server learnt that a session's pod had been lost while its job was running.
ALTER TABLE runner_sessions ADD COLUMN lost_at timestamptz;
CREATE INDEX runner_sessions_lost ON runner_sessions (lost_at) WHERE lost_at IS NOT NULL;

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP INDEX runner_sessions_lost, workflow_jobs_rerun, workflow_jobs_waiting_since, workflow_jobs_waiting_long;
ALTER TABLE runner_sessions DROP COLUMN lost_at;
ALTER TABLE workflow_jobs DROP COLUMN rerun_at, DROP COLUMN rerun, DROP COLUMN confirmed_at, DROP COLUMN asked_at;
DROP TABLE repositories, delivery_asks, delivery_position;
