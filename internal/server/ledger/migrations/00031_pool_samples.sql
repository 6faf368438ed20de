-- +goose Up
SET LOCAL lock_timeout = '5s';

-- What charts show: what each pool had, and what was queued for it, once a minute; of the whole fleet under two empty names. After a day
-- fifteen minutes become one row, and a row is a sum either way: so many minutes were sampled, and adding rows adds up their numbers.
CREATE TABLE pool_samples (
    namespace   text NOT NULL,
    pool        text NOT NULL,
    at          timestamptz NOT NULL, -- the begin of the span
    span        smallint NOT NULL CHECK (span IN (1, 15)), -- minutes
    samples     smallint NOT NULL CHECK (samples BETWEEN 0 AND span), -- minutes that were sampled; 0: queue times alone are known
    queued      bigint NOT NULL,
    busy        bigint NOT NULL,
    idle        bigint NOT NULL,
    starting    bigint NOT NULL,
    capacity    bigint NOT NULL,
    peak_queued bigint NOT NULL, -- of one minute
    peak_busy   bigint NOT NULL,
    queue_times bigint[] NOT NULL, -- jobs that began in the span, by bucket (internal/server/history)
    PRIMARY KEY (namespace, pool, at)
);
-- What is rolled up, and what is removed.
CREATE INDEX pool_samples_span ON pool_samples (span, at);

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE pool_samples;
