-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- The last lines of runners that died: of those that never had a job, too, which have no session.
CREATE TABLE IF NOT EXISTS runner_tails (
    pod_uid   text PRIMARY KEY,
    namespace text NOT NULL,
    pod_name  text NOT NULL,
    pool      text NOT NULL,
    ended_at  timestamptz NOT NULL,
    exit_code integer, -- null: not known
    reason    text NOT NULL,
    tail      text NOT NULL,
    cut       boolean NOT NULL -- there was more before it
);
CREATE INDEX IF NOT EXISTS runner_tails_ended ON runner_tails (ended_at);
CREATE INDEX IF NOT EXISTS runner_tails_pod ON runner_tails (namespace, pod_name, ended_at);
CREATE INDEX IF NOT EXISTS runner_tails_pool ON runner_tails (namespace, pool, ended_at);
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP TABLE IF EXISTS runner_tails;
RESET lock_timeout;
