-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- An account's jobs, of each state the latest first: what a page of them shows, and what is done to all of them when a repository or the account goes.
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_account;
CREATE INDEX CONCURRENTLY workflow_jobs_account ON workflow_jobs (account_id, state, id);
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_account;
RESET lock_timeout;
