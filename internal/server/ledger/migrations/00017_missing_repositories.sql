-- +goose Up
SET LOCAL lock_timeout = '5s';

-- When GitHub's list of what an installation may see first lacked the repository; a second list that lacks it, too, counts.
ALTER TABLE repositories ADD COLUMN missing_at timestamptz;

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE repositories DROP COLUMN missing_at;
