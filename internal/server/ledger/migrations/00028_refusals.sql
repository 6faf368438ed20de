-- +goose Up
SET LOCAL lock_timeout = '5s';

-- What GitHub does not do for jobs of an account, and when it is tried again (CLAIM-19, CLAIM-20). An empty repository: of the whole account, or
-- of a pool there, for people to read. trying is the job that was brought back to find out.
CREATE TABLE refusals (
    account_id bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    repository text NOT NULL,
    job_id     bigint NOT NULL,
    namespace  text NOT NULL,
    pool       text NOT NULL,
    reason     text NOT NULL CHECK (reason IN ('refused', 'not_assigned')),
    status     integer NOT NULL,
    message    text NOT NULL,
    failures   bigint NOT NULL,
    waits      boolean NOT NULL,
    trying     bigint NOT NULL DEFAULT 0,
    since      timestamptz NOT NULL,
    next_at    timestamptz NOT NULL,
    PRIMARY KEY (account_id, repository, job_id, namespace, pool)
);
CREATE INDEX refusals_next ON refusals (next_at);
CREATE INDEX refusals_standing ON refusals (since, account_id, repository, job_id, namespace, pool) WHERE waits;

-- Jobs are held for them, all of a repository or one by itself.
ALTER TABLE workflow_jobs DROP CONSTRAINT workflow_jobs_held_check;
ALTER TABLE workflow_jobs ADD CONSTRAINT workflow_jobs_held_check
    CHECK (held IN ('', 'repository_limit', 'repository_removed', 'label_sets', 'refused', 'refused_job')) NOT VALID; -- whatever is there passed the former one

-- +goose Down
SET LOCAL lock_timeout = '5s';
UPDATE workflow_jobs SET held = '' WHERE held IN ('refused', 'refused_job');
INSERT INTO job_lanes (label_key, account_id, head_at)
    SELECT label_key, account_id, min(queued_at) FROM workflow_jobs WHERE state = 'queued' AND held = '' GROUP BY label_key, account_id
    ON CONFLICT (label_key, account_id) DO UPDATE SET parked = '', version = job_lanes.version + 1;
ALTER TABLE workflow_jobs DROP CONSTRAINT workflow_jobs_held_check;
ALTER TABLE workflow_jobs ADD CONSTRAINT workflow_jobs_held_check
    CHECK (held IN ('', 'repository_limit', 'repository_removed', 'label_sets')) NOT VALID;
DROP TABLE refusals;
