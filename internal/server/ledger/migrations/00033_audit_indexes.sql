-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- Pages of the audit log are read newest first, also of a period, of an account, or of a pool.
DROP INDEX CONCURRENTLY IF EXISTS audit_events_newest;
CREATE INDEX CONCURRENTLY audit_events_newest ON audit_events (at, id);
DROP INDEX CONCURRENTLY IF EXISTS audit_events_account_at;
CREATE INDEX CONCURRENTLY audit_events_account_at ON audit_events (account_id, at, id);
DROP INDEX CONCURRENTLY IF EXISTS audit_events_subject_at;
CREATE INDEX CONCURRENTLY audit_events_subject_at ON audit_events (lower(subject), at, id);
DROP INDEX CONCURRENTLY IF EXISTS audit_events_pool_at;
CREATE INDEX CONCURRENTLY audit_events_pool_at ON audit_events (pool, at, id) WHERE pool <> '';
DROP INDEX CONCURRENTLY IF EXISTS audit_events_at;
DROP INDEX CONCURRENTLY IF EXISTS audit_events_account;
DROP INDEX CONCURRENTLY IF EXISTS audit_events_subject;
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS audit_events_at;
CREATE INDEX CONCURRENTLY audit_events_at ON audit_events (at);
DROP INDEX CONCURRENTLY IF EXISTS audit_events_account;
CREATE INDEX CONCURRENTLY audit_events_account ON audit_events (account_id, id);
DROP INDEX CONCURRENTLY IF EXISTS audit_events_subject;
CREATE INDEX CONCURRENTLY audit_events_subject ON audit_events (lower(subject), id);
DROP INDEX CONCURRENTLY IF EXISTS audit_events_pool_at;
DROP INDEX CONCURRENTLY IF EXISTS audit_events_subject_at;
DROP INDEX CONCURRENTLY IF EXISTS audit_events_account_at;
DROP INDEX CONCURRENTLY IF EXISTS audit_events_newest;
RESET lock_timeout;
