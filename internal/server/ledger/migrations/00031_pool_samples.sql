-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Samples for charts: runners and queued jobs of each pool once a minute, and of the fleet under two empty names. After a day, fifteen
-- minutes become one row. A row holds sums over its sampled minutes, so that rows add up.
CREATE TABLE pool_samples (
    namespace   text NOT NULL,
    pool        text NOT NULL,
    at          timestamptz NOT NULL, -- begin of the span
    span        smallint NOT NULL CHECK (span IN (1, 15)), -- minutes
    samples     smallint NOT NULL CHECK (samples BETWEEN 0 AND span), -- sampled minutes; 0: only queue times are known
    queued      bigint NOT NULL,
    busy        bigint NOT NULL,
    idle        bigint NOT NULL,
    starting    bigint NOT NULL,
    capacity    bigint NOT NULL,
    peak_queued bigint NOT NULL, -- the highest minute
    peak_busy   bigint NOT NULL,
    queue_times bigint[] NOT NULL, -- jobs that started, by bucket (internal/server/history)
    PRIMARY KEY (namespace, pool, at)
);
-- For the roll-up and for retention.
CREATE INDEX pool_samples_span ON pool_samples (span, at);

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE pool_samples;
