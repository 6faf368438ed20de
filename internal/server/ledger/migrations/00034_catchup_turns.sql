-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- Catching up takes accounts in turn: what is due is read of one account at a time, not of all. The predicate of the jobs' index is one that no
-- other statement has: without statistics, PostgreSQL would read an account's whole queue by this index in place of a lane or a job.
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_account_waiting_long;
CREATE INDEX CONCURRENTLY workflow_jobs_account_waiting_long ON workflow_jobs (account_id, coalesce(asked_at, queued_at), id)
    WHERE ('' || state) IN ('queued', 'waiting');
DROP INDEX CONCURRENTLY IF EXISTS repositories_account_swept;
CREATE INDEX CONCURRENTLY repositories_account_swept ON repositories (account_id, swept_at, name);
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_waiting_long;
DROP INDEX CONCURRENTLY IF EXISTS repositories_swept;
DROP INDEX CONCURRENTLY IF EXISTS repositories_account;
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS repositories_account;
CREATE INDEX CONCURRENTLY repositories_account ON repositories (account_id);
DROP INDEX CONCURRENTLY IF EXISTS repositories_swept;
CREATE INDEX CONCURRENTLY repositories_swept ON repositories (swept_at, name);
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_waiting_long;
CREATE INDEX CONCURRENTLY workflow_jobs_waiting_long ON workflow_jobs (coalesce(asked_at, queued_at), id) WHERE state IN ('queued', 'waiting');
DROP INDEX CONCURRENTLY IF EXISTS repositories_account_swept;
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_account_waiting_long;
RESET lock_timeout;
