-- +goose Up
SET LOCAL lock_timeout = '5s';

-- The number of the latest request of the pod's poller that the claim was made for, or taken over by: an earlier one, whose
-- connection is half open, takes nothing over at any replica. 0: its agent does not number its requests.
ALTER TABLE runner_claims ADD COLUMN sequence bigint NOT NULL DEFAULT 0;

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE runner_claims DROP COLUMN sequence;
