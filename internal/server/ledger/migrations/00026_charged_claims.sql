-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- A pod is charged to its account until it has stopped or is gone, not only until its job is over (TEN-4). The index of what is charged replaces
-- that of live claims, whose conditions it serves too.
ALTER TABLE runner_claims ADD COLUMN IF NOT EXISTS stopped_at timestamptz;
DROP INDEX CONCURRENTLY IF EXISTS runner_claims_charged;
CREATE INDEX CONCURRENTLY runner_claims_charged ON runner_claims (account_id, platform) INCLUDE (milli_cpu, memory_mb)
    WHERE state IN ('claimed', 'minted', 'executing') OR state = 'spent' AND stopped_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS runner_claims_usage;
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS runner_claims_usage;
CREATE INDEX CONCURRENTLY runner_claims_usage ON runner_claims (account_id, platform) INCLUDE (milli_cpu, memory_mb)
    WHERE state IN ('claimed', 'minted', 'executing');
DROP INDEX CONCURRENTLY IF EXISTS runner_claims_charged;
ALTER TABLE runner_claims DROP COLUMN IF EXISTS stopped_at;
RESET lock_timeout;
