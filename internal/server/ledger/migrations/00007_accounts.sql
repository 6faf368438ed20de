-- +goose Up
SET LOCAL lock_timeout = '5s';

-- What administrators decide about an account stands beside what GitHub says of it: it is served only when both allow it.
ALTER TABLE accounts
    ADD COLUMN paused boolean NOT NULL DEFAULT false,   -- an administrator suspended it
    ADD COLUMN paused_reason text NOT NULL DEFAULT '',
    ADD COLUMN deleted_at timestamptz,                  -- an administrator deleted it; the row stays for its history
    ADD COLUMN version bigint NOT NULL DEFAULT 1,       -- raised by every change of an administrator: two do not overwrite each other
    ADD COLUMN installation_changed_at timestamptz,     -- a list of installations that was begun earlier says nothing about it
    ADD COLUMN installation_missing_at timestamptz;     -- GitHub's list lacked its installation then
CREATE INDEX accounts_login ON accounts (lower(login), id);

-- GitHub never uses an installation's id again, so its end is final, in whatever order its messages come.
CREATE TABLE ended_installations (
    id       bigint PRIMARY KEY,
    ended_at timestamptz NOT NULL
);

-- Most jobs of one repository at a time; 0: only the account's own limits count.
ALTER TABLE account_limits
    ADD COLUMN repository_jobs bigint NOT NULL DEFAULT 0 CHECK (repository_jobs >= 0);

-- Repositories that GitHub has taken from an account's installation: their queued jobs wait until they are given back.
CREATE TABLE removed_repositories (
    account_id bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    repository text NOT NULL, -- owner/name
    removed_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, repository)
);

-- A held job is queued and out of the queue's index, so that a pick never reads it: its repository is at its cap, or
-- was taken from the installation.
ALTER TABLE workflow_jobs
    ADD COLUMN held text NOT NULL DEFAULT '' CHECK (held IN ('', 'repository_limit', 'repository_removed'));
DROP INDEX workflow_jobs_queue;
CREATE INDEX workflow_jobs_queue ON workflow_jobs (label_key, account_id, queued_at, id)
    WHERE state = 'queued' AND held = '';
CREATE INDEX workflow_jobs_held_lane ON workflow_jobs (label_key, account_id) WHERE state = 'queued' AND held <> '';
CREATE INDEX workflow_jobs_held ON workflow_jobs (account_id, repository, queued_at, id)
    WHERE state = 'queued' AND held <> '';

-- A lane may have held jobs and no other: a pick has no more to do with it than with an empty one.
ALTER TABLE job_lanes DROP CONSTRAINT job_lanes_parked_check;
ALTER TABLE job_lanes ADD CONSTRAINT job_lanes_parked_check
    CHECK (parked IN ('', 'empty', 'limit', 'suspended', 'held'));

-- Who changed what: written in the transaction of the change, never updated.
CREATE TABLE audit_events (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    actor      text NOT NULL,  -- the Kubernetes user name, or "github"
    credential text NOT NULL DEFAULT '', -- the id of its token, which Kubernetes' own audit log knows too
    action     text NOT NULL,
    account_id bigint,         -- no reference: it outlives the account
    subject    text NOT NULL,  -- the account's login at that time
    before     jsonb,
    after      jsonb,
    reason     text NOT NULL DEFAULT ''
);
CREATE INDEX audit_events_account ON audit_events (account_id, id);
CREATE INDEX audit_events_subject ON audit_events (lower(subject), id);

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE audit_events, removed_repositories, ended_installations;
UPDATE job_lanes SET parked = '', version = version + 1 WHERE parked = 'held';
ALTER TABLE job_lanes DROP CONSTRAINT job_lanes_parked_check;
ALTER TABLE job_lanes ADD CONSTRAINT job_lanes_parked_check CHECK (parked IN ('', 'empty', 'limit', 'suspended'));
DROP INDEX workflow_jobs_held, workflow_jobs_held_lane, workflow_jobs_queue;
ALTER TABLE workflow_jobs DROP COLUMN held;
CREATE INDEX workflow_jobs_queue ON workflow_jobs (label_key, account_id, queued_at, id) WHERE state = 'queued';
ALTER TABLE account_limits DROP COLUMN repository_jobs;
DROP INDEX accounts_login;
ALTER TABLE accounts DROP COLUMN paused, DROP COLUMN paused_reason, DROP COLUMN deleted_at, DROP COLUMN version,
    DROP COLUMN installation_changed_at, DROP COLUMN installation_missing_at;
