-- +goose Up

-- What the signals read of a ledger that keeps every session: those that ended of late, and those that are open.
CREATE INDEX runner_sessions_ended ON runner_sessions (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runner_sessions_open ON runner_sessions (pod_uid) WHERE ended_at IS NULL;

-- +goose Down
DROP INDEX runner_sessions_ended, runner_sessions_open;
