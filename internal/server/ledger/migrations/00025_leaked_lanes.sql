-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Lanes in which nothing waits and that no batch has looked at, because no pool serves them: from here on whatever takes the last job out of a
-- lane parks it (TEN-2). Nobody feeds one meanwhile.
LOCK TABLE job_lanes IN SHARE ROW EXCLUSIVE MODE;
UPDATE job_lanes l SET parked = 'empty', version = l.version + 1
WHERE l.parked = '' AND NOT EXISTS (
    SELECT 1 FROM workflow_jobs w WHERE w.label_key = l.label_key AND w.account_id = l.account_id AND w.state = 'queued');

-- +goose Down
SET LOCAL lock_timeout = '5s';
