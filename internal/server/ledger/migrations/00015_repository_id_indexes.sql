-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- What follows a repository to another name: few rows, of many.
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_repository;
CREATE INDEX CONCURRENTLY workflow_jobs_repository ON workflow_jobs (repository_id)
    WHERE repository_id <> 0 AND state NOT IN ('completed', 'cancelled', 'stale');
DROP INDEX CONCURRENTLY IF EXISTS runner_registrations_repository;
CREATE INDEX CONCURRENTLY runner_registrations_repository ON runner_registrations (repository_id)
    WHERE repository_id <> 0 AND state <> 'gone';
DROP INDEX CONCURRENTLY IF EXISTS repositories_id;
CREATE INDEX CONCURRENTLY repositories_id ON repositories (repository_id) WHERE repository_id <> 0;
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS repositories_id;
DROP INDEX CONCURRENTLY IF EXISTS runner_registrations_repository;
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_repository;
RESET lock_timeout;
