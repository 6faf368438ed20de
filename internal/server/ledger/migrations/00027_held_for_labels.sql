-- +goose Up
SET LOCAL lock_timeout = '5s';

-- A job is held as well while its account has jobs of as many label sets as one may have (TEN-2).
ALTER TABLE workflow_jobs DROP CONSTRAINT workflow_jobs_held_check;
ALTER TABLE workflow_jobs ADD CONSTRAINT workflow_jobs_held_check
    CHECK (held IN ('', 'repository_limit', 'repository_removed', 'label_sets')) NOT VALID; -- whatever is there passed the former one

-- +goose Down
SET LOCAL lock_timeout = '5s';
UPDATE workflow_jobs SET held = '' WHERE held = 'label_sets';
INSERT INTO job_lanes (label_key, account_id, head_at)
    SELECT label_key, account_id, min(queued_at) FROM workflow_jobs WHERE state = 'queued' AND held = '' GROUP BY label_key, account_id
    ON CONFLICT (label_key, account_id) DO NOTHING;
ALTER TABLE workflow_jobs DROP CONSTRAINT workflow_jobs_held_check;
ALTER TABLE workflow_jobs ADD CONSTRAINT workflow_jobs_held_check CHECK (held IN ('', 'repository_limit', 'repository_removed')) NOT VALID;
