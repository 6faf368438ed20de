-- +goose Up

-- The job queue's own tables; its migrations follow when these have run.
CREATE SCHEMA IF NOT EXISTS river;

-- When each pass ran last, by this database's clock: the replicas' clocks decide nothing. Few rows, often updated.
CREATE TABLE passes (
    name         text PRIMARY KEY,
    runs         bigint NOT NULL DEFAULT 0, -- begun; taken by compare-and-set, so that each runs once
    finished     bigint NOT NULL DEFAULT 0, -- the last one that came to an end; less than runs: it runs, or it died
    created_at   timestamptz NOT NULL DEFAULT now(),
    started_at   timestamptz,
    finished_at  timestamptz,
    succeeded_at timestamptz
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE passes;
DROP SCHEMA river CASCADE;
