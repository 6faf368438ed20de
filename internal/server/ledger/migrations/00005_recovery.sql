-- +goose Up
SET LOCAL lock_timeout = '5s';

-- RECV-4: since when the pod of a live claim has not been listed; a reappearance resets it.
ALTER TABLE runner_claims ADD COLUMN missing_since timestamptz;
-- When recovery looks again at what it has looked at and left: GitHub is not asked every minute about every long job.
ALTER TABLE runner_claims ADD COLUMN look_at timestamptz;
ALTER TABLE workflow_jobs ADD COLUMN look_at timestamptz;

-- Few: a pass costs what is wrong, not what there ever was.
CREATE INDEX runner_registrations_open ON runner_registrations (pod_uid) WHERE state <> 'gone';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP INDEX runner_registrations_open;
ALTER TABLE workflow_jobs DROP COLUMN look_at;
ALTER TABLE runner_claims DROP COLUMN look_at, DROP COLUMN missing_since;
