-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = '5s';

-- A job that waited at GitHub queues up where it was approved (TEN-7): queued_at is that moment then, and this is when GitHub made it.
ALTER TABLE workflow_jobs ADD COLUMN IF NOT EXISTS created_at timestamptz;
RESET lock_timeout;

-- +goose Down
SET lock_timeout = '5s';
ALTER TABLE workflow_jobs DROP COLUMN IF EXISTS created_at;
RESET lock_timeout;
