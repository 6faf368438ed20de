-- +goose Up

-- Accounts are GitHub's organizations and users that installed the App; the key is GitHub's own account id, which
-- survives a rename.
CREATE TABLE accounts (
    id              bigint PRIMARY KEY,
    login           text NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('Organization', 'User')),
    installation_id bigint UNIQUE, -- null once the App was uninstalled
    suspended       boolean NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL
);

CREATE TABLE account_limits (
    account_id bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    platform   text NOT NULL CHECK (platform IN ('linux', 'macos')),
    milli_cpu  bigint NOT NULL CHECK (milli_cpu >= 0),
    memory_mb  bigint NOT NULL CHECK (memory_mb >= 0),
    jobs       bigint NOT NULL CHECK (jobs >= 0),
    PRIMARY KEY (account_id, platform)
);

-- One row per delivery GUID: GitHub delivers at least once, an administrator redelivers.
CREATE TABLE webhook_deliveries (
    guid        text PRIMARY KEY,
    event       text NOT NULL,
    received_at timestamptz NOT NULL
);
CREATE INDEX webhook_deliveries_received ON webhook_deliveries (received_at);

-- The distinct sets of labels that jobs have asked for; few. The key is the canonical JSON of the sorted set.
CREATE TABLE label_sets (
    label_key text PRIMARY KEY,
    labels    text[] NOT NULL
);

CREATE TABLE workflow_jobs (
    id            bigint PRIMARY KEY, -- GitHub's job id
    account_id    bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    repository    text NOT NULL,      -- owner/name
    run_id        bigint NOT NULL,
    run_attempt   bigint NOT NULL,
    name          text NOT NULL,
    workflow      text NOT NULL,
    head_branch   text NOT NULL,
    head_sha      text NOT NULL,
    label_key     text NOT NULL REFERENCES label_sets (label_key),
    state         text NOT NULL CHECK (state IN
                    ('waiting', 'queued', 'claimed', 'minted', 'executing', 'completed', 'cancelled', 'stale')),
    conclusion    text NOT NULL DEFAULT '',
    runner_name   text NOT NULL DEFAULT '',
    queued_at     timestamptz NOT NULL,
    started_at    timestamptz,
    completed_at  timestamptz,
    updated_at    timestamptz NOT NULL,
    CHECK ((completed_at IS NOT NULL) = (state IN ('completed', 'cancelled', 'stale')))
);
-- The queue: the head of one account's lane is one index probe, however long the backlog.
CREATE INDEX workflow_jobs_queue ON workflow_jobs (label_key, account_id, queued_at, id) WHERE state = 'queued';
CREATE INDEX workflow_jobs_live ON workflow_jobs (state, id) WHERE state NOT IN ('completed', 'cancelled', 'stale');

-- A tombstone outlives its job's row: nothing revives a finished job (CLAIM-4).
CREATE TABLE job_tombstones (
    job_id       bigint PRIMARY KEY,
    conclusion   text NOT NULL,
    completed_at timestamptz NOT NULL
);

-- A lane is one account's queue for one set of labels. Parked lanes cost a pick nothing: they are empty, or their
-- account is at its limit. Whoever adds work or frees room unparks and raises the version; parking is a
-- compare-and-set on the version, so that neither can be missed.
CREATE TABLE job_lanes (
    label_key   text NOT NULL REFERENCES label_sets (label_key),
    account_id  bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    parked      text NOT NULL DEFAULT '' CHECK (parked IN ('', 'empty', 'limit', 'suspended')),
    version     bigint NOT NULL DEFAULT 0,
    head_at     timestamptz NOT NULL, -- at or before the queued_at of the lane's oldest queued job
    running     bigint NOT NULL DEFAULT 0 CHECK (running >= 0), -- live claims made from this lane
    PRIMARY KEY (label_key, account_id)
);
CREATE INDEX job_lanes_fifo ON job_lanes (label_key, head_at, account_id) WHERE parked = '';
CREATE INDEX job_lanes_fair ON job_lanes (label_key, running, head_at, account_id) WHERE parked = '';
CREATE INDEX job_lanes_account ON job_lanes (account_id);

-- Who owns a pod's single shot. EXCL-1: claim and retire are inserts into this one primary key. A row lives until
-- its UID is proven gone; only a claim whose mint definitely never happened is taken back.
CREATE TABLE runner_claims (
    pod_uid      text PRIMARY KEY,
    namespace    text NOT NULL,
    pod_name     text NOT NULL,
    pool         text NOT NULL,
    state        text NOT NULL CHECK (state IN ('claimed', 'minted', 'executing', 'spent', 'retired')),
    generation   bigint NOT NULL, -- CLAIM-15: taken anew by whoever acts, tested by every later write
    lease_until  timestamptz,     -- a replica is minting until then; null: nobody is
    account_id   bigint REFERENCES accounts (id) ON DELETE RESTRICT,
    platform     text NOT NULL DEFAULT '',
    milli_cpu    bigint NOT NULL DEFAULT 0,
    memory_mb    bigint NOT NULL DEFAULT 0,
    label_key    text NOT NULL DEFAULT '',
    job_id       bigint,          -- minted for, then executing; null: GitHub gave its job to another runner
    runner_name  text NOT NULL DEFAULT '',
    claimed_at   timestamptz NOT NULL,
    minted_at    timestamptz,
    acknowledged_at timestamptz,
    executing_at timestamptz,
    ended_at     timestamptz,
    UNIQUE (namespace, pod_name),
    CHECK (state IN ('spent', 'retired') OR account_id IS NOT NULL)
);
-- CLAIM-1: one live claim a job. CLAIM-5 sums by the second index.
CREATE UNIQUE INDEX runner_claims_job ON runner_claims (job_id)
    WHERE job_id IS NOT NULL AND state IN ('claimed', 'minted', 'executing');
CREATE INDEX runner_claims_usage ON runner_claims (account_id, platform) INCLUDE (milli_cpu, memory_mb)
    WHERE state IN ('claimed', 'minted', 'executing');
CREATE INDEX runner_claims_runner ON runner_claims (runner_name);

-- Every name ever minted, written before the mint so that an ambiguous time-out can be found at GitHub.
CREATE TABLE runner_registrations (
    runner_name text PRIMARY KEY CHECK (length(runner_name) <= 64), -- CLAIM-10
    pod_uid     text NOT NULL,
    account_id  bigint NOT NULL,
    scope       text NOT NULL,
    generation  bigint NOT NULL,
    runner_id   bigint NOT NULL DEFAULT 0, -- 0: GitHub has not told us
    state       text NOT NULL CHECK (state IN ('intended', 'alive', 'gone')),
    created_at  timestamptz NOT NULL,
    gone_at     timestamptz
);
CREATE INDEX runner_registrations_pod ON runner_registrations (pod_uid);

-- One append-only row per dispatched pod: what usage and audit read.
CREATE TABLE runner_sessions (
    pod_uid         text PRIMARY KEY,
    namespace       text NOT NULL,
    pod_name        text NOT NULL,
    pool            text NOT NULL,
    account_id      bigint NOT NULL,
    platform        text NOT NULL,
    milli_cpu       bigint NOT NULL,
    memory_mb       bigint NOT NULL,
    runner_name     text NOT NULL,
    job_id          bigint, -- the job it was minted for
    executed_job_id bigint, -- the job GitHub gave it
    repository      text NOT NULL DEFAULT '',
    started_at      timestamptz NOT NULL,
    job_started_at  timestamptz,
    job_ended_at    timestamptz,
    ended_at        timestamptz,
    exit_code       integer
);
CREATE INDEX runner_sessions_account ON runner_sessions (account_id, started_at);

-- in_progress events that named a runner without a live claim: to be confirmed with GitHub, then adopted (CLAIM-13).
CREATE TABLE runner_adoptions (
    runner_name text PRIMARY KEY,
    runner_id   bigint NOT NULL,
    pod_uid     text NOT NULL,
    account_id  bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    job_id      bigint NOT NULL,
    scope       text NOT NULL,
    created_at  timestamptz NOT NULL,
    next_at     timestamptz NOT NULL,
    attempts    bigint NOT NULL DEFAULT 0
);
CREATE INDEX runner_adoptions_next ON runner_adoptions (next_at);

-- +goose Down
DROP TABLE runner_adoptions, runner_sessions, runner_registrations, runner_claims, job_lanes, job_tombstones,
    workflow_jobs, label_sets, webhook_deliveries, account_limits, accounts;
