-- +goose Up
SET LOCAL lock_timeout = '5s';

-- What retention reads: each kind of row by the time at which it came to its end.
CREATE INDEX workflow_jobs_ended ON workflow_jobs (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX job_tombstones_completed ON job_tombstones (completed_at);
CREATE INDEX runner_registrations_gone ON runner_registrations (gone_at) WHERE state = 'gone';
CREATE INDEX runner_adoptions_created ON runner_adoptions (created_at);
CREATE INDEX job_lanes_idle ON job_lanes (head_at) WHERE parked = 'empty' AND running = 0;
-- Whether any job has a set of labels, ended ones too: also what the reference between the two asks when a set goes.
CREATE INDEX workflow_jobs_labels ON workflow_jobs (label_key);

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP INDEX workflow_jobs_labels, job_lanes_idle, runner_adoptions_created, runner_registrations_gone,
    job_tombstones_completed, workflow_jobs_ended;
