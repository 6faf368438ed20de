-- +goose Up

-- How it is known that a spent row's work is over, in a sentence for people: what a runner that shows work is removed
-- on (EXCL-4). Until now a row was spent only by GitHub's word that its runner completed a job.
ALTER TABLE runner_claims ADD COLUMN proof text NOT NULL DEFAULT '';
UPDATE runner_claims SET proof = 'GitHub said that its runner has completed its job' WHERE state = 'spent';

-- +goose Down
ALTER TABLE runner_claims DROP COLUMN proof;
