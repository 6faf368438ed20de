-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- What became of a job and when, for as long as its row is kept: a claim's times go with its pod, so that a session keeps them.
ALTER TABLE workflow_jobs ADD COLUMN IF NOT EXISTS received_at timestamptz, -- our first word of it
    ADD COLUMN IF NOT EXISTS approved_at timestamptz; -- it waited at GitHub until then
ALTER TABLE runner_sessions ADD COLUMN IF NOT EXISTS claimed_at timestamptz,
    ADD COLUMN IF NOT EXISTS acknowledged_at timestamptz;
DROP INDEX CONCURRENTLY IF EXISTS runner_sessions_job;
CREATE INDEX CONCURRENTLY runner_sessions_job ON runner_sessions (executed_job_id) WHERE executed_job_id IS NOT NULL;
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS runner_sessions_job;
ALTER TABLE runner_sessions DROP COLUMN IF EXISTS acknowledged_at, DROP COLUMN IF EXISTS claimed_at;
ALTER TABLE workflow_jobs DROP COLUMN IF EXISTS approved_at, DROP COLUMN IF EXISTS received_at;
RESET lock_timeout;
