-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- Label sets in the order of their bytes, in which those of a pool's labels lie between others that can be skipped (TEN-1). The order of the
-- primary key is the database's, which may ignore punctuation.
DROP INDEX CONCURRENTLY IF EXISTS job_lanes_bytes;
CREATE INDEX CONCURRENTLY job_lanes_bytes ON job_lanes (label_key COLLATE "C");
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS job_lanes_bytes;
RESET lock_timeout;
