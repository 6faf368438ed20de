-- +goose Up
SET LOCAL lock_timeout = '5s';

-- RECV-1: since when a pod that nobody has a claim for has shown the work that it shows, by this database's clock. What the pod
-- says itself is by its node's clock: it tells that something has changed, and not how long ago.
CREATE TABLE pod_sightings (
    pod_uid text PRIMARY KEY,
    shown   text NOT NULL,
    since   timestamptz NOT NULL
);

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE pod_sightings;
