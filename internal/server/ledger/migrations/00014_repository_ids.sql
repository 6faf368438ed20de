-- +goose Up
SET LOCAL lock_timeout = '5s';

-- GitHub's id of a repository, which survives a rename: a name may be another repository's by the time that it is asked about.
-- 0: not told, as in rows of an earlier version.
ALTER TABLE workflow_jobs ADD COLUMN repository_id bigint NOT NULL DEFAULT 0;
ALTER TABLE runner_registrations ADD COLUMN repository_id bigint NOT NULL DEFAULT 0; -- where its scope is one
ALTER TABLE runner_adoptions ADD COLUMN repository_id bigint NOT NULL DEFAULT 0;     -- where its scope is one
-- named_at: what is said of its name is GitHub's word of then, so that late news renames nothing back.
ALTER TABLE repositories
    ADD COLUMN repository_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN named_at timestamptz NOT NULL DEFAULT '-infinity';

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE repositories DROP COLUMN named_at, DROP COLUMN repository_id;
ALTER TABLE runner_adoptions DROP COLUMN repository_id;
ALTER TABLE runner_registrations DROP COLUMN repository_id;
ALTER TABLE workflow_jobs DROP COLUMN repository_id;
