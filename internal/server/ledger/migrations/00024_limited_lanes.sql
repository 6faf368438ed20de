-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- The lanes that an account's limit has parked: what the end of a claim may give room to, and no other (TEN-1).
DROP INDEX CONCURRENTLY IF EXISTS job_lanes_limit;
CREATE INDEX CONCURRENTLY job_lanes_limit ON job_lanes (account_id, label_key) WHERE parked = 'limit';
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS job_lanes_limit;
RESET lock_timeout;
