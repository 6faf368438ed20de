-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- An account's repositories: what a comparison with GitHub's list and a rebuilding after a restore ask for. Without seen_at, which every job
-- moves on: an update that touches no index stays in its page.
DROP INDEX CONCURRENTLY IF EXISTS repositories_account;
CREATE INDEX CONCURRENTLY repositories_account ON repositories (account_id);
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS repositories_account;
RESET lock_timeout;
