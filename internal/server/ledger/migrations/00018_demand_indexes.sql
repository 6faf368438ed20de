-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- What the demand for runners that register themselves reads: the jobs that run in an account's lane, which workflow_jobs_queue
-- has not, and those that wait or run in one repository of it.
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_executing_lane;
CREATE INDEX CONCURRENTLY workflow_jobs_executing_lane ON workflow_jobs (label_key, account_id, queued_at, id) WHERE state = 'executing';
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_repository_lane;
CREATE INDEX CONCURRENTLY workflow_jobs_repository_lane ON workflow_jobs (label_key, account_id, lower(repository), state, queued_at, id)
    WHERE state IN ('queued', 'executing');
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_repository_lane;
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_executing_lane;
RESET lock_timeout;
