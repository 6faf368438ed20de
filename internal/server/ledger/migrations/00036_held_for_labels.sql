-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- Jobs that are held for their label set, in their order: those of an account, and those of one lane of it, however many others are held (TEN-2).
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_held_labels;
CREATE INDEX CONCURRENTLY workflow_jobs_held_labels ON workflow_jobs (account_id, queued_at, id) WHERE state = 'queued' AND held = 'label_sets';
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_held_labels_lane;
CREATE INDEX CONCURRENTLY workflow_jobs_held_labels_lane ON workflow_jobs (label_key, account_id, queued_at, id)
    WHERE state = 'queued' AND held = 'label_sets';
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_held_labels_lane;
DROP INDEX CONCURRENTLY IF EXISTS workflow_jobs_held_labels;
RESET lock_timeout;
