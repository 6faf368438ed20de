-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- What retention reads of the kinds that were kept for ever until now.
DROP INDEX CONCURRENTLY IF EXISTS audit_events_at;
CREATE INDEX CONCURRENTLY audit_events_at ON audit_events (at);
DROP INDEX CONCURRENTLY IF EXISTS repositories_seen;
CREATE INDEX CONCURRENTLY repositories_seen ON repositories (seen_at);
DROP INDEX CONCURRENTLY IF EXISTS ended_installations_ended;
CREATE INDEX CONCURRENTLY ended_installations_ended ON ended_installations (ended_at);
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS ended_installations_ended;
DROP INDEX CONCURRENTLY IF EXISTS repositories_seen;
DROP INDEX CONCURRENTLY IF EXISTS audit_events_at;
RESET lock_timeout;
