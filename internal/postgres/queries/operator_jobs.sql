-- name: LiveJobPage :many
-- Jobs that have not ended, the latest first. The condition is written as the index workflow_jobs_live has it.
SELECT w.id, w.account_id, w.repository, w.run_id, w.run_attempt, w.name, w.workflow, w.head_branch, w.head_sha, w.label_key, w.state,
    w.held, w.conclusion, w.runner_name, w.queued_at, w.started_at, w.completed_at, a.login, s.labels,
    coalesce(c.pod_name, '')::text AS pod, coalesce(c.pool, '')::text AS pool, coalesce(c.state, '')::text AS claim,
    coalesce(c.runner_name, '')::text AS registered, c.claimed_at, c.minted_at, c.acknowledged_at, w.received_at, w.approved_at
FROM workflow_jobs w
JOIN accounts a ON a.id = w.account_id
JOIN label_sets s ON s.label_key = w.label_key
LEFT JOIN runner_claims c ON c.job_id = w.id AND c.state IN ('claimed', 'minted', 'executing')
WHERE w.state NOT IN ('completed', 'cancelled', 'stale') AND w.id < @before
    AND (@account_id::bigint = 0 OR w.account_id = @account_id::bigint)
    AND (@repository::text = '' OR lower(w.repository) = lower(@repository::text))
    AND (cardinality(@states::text[]) = 0 OR w.state = ANY (@states::text[]))
ORDER BY w.id DESC LIMIT @most;

-- name: JobPage :many
-- All jobs, ended ones too, the latest first: GitHub's ids grow.
SELECT w.id, w.account_id, w.repository, w.run_id, w.run_attempt, w.name, w.workflow, w.head_branch, w.head_sha, w.label_key, w.state,
    w.held, w.conclusion, w.runner_name, w.queued_at, w.started_at, w.completed_at, a.login, s.labels,
    coalesce(c.pod_name, '')::text AS pod, coalesce(c.pool, '')::text AS pool, coalesce(c.state, '')::text AS claim,
    coalesce(c.runner_name, '')::text AS registered, c.claimed_at, c.minted_at, c.acknowledged_at, w.received_at, w.approved_at
FROM workflow_jobs w
JOIN accounts a ON a.id = w.account_id
JOIN label_sets s ON s.label_key = w.label_key
LEFT JOIN runner_claims c ON c.job_id = w.id AND c.state IN ('claimed', 'minted', 'executing')
WHERE w.id < @before
    AND (@account_id::bigint = 0 OR w.account_id = @account_id::bigint)
    AND (@repository::text = '' OR lower(w.repository) = lower(@repository::text))
    AND (cardinality(@states::text[]) = 0 OR w.state = ANY (@states::text[]))
ORDER BY w.id DESC LIMIT @most;

-- name: JobInFull :one
SELECT w.id, w.account_id, w.repository, w.run_id, w.run_attempt, w.name, w.workflow, w.head_branch, w.head_sha, w.label_key, w.state,
    w.held, w.conclusion, w.runner_name, w.queued_at, w.started_at, w.completed_at, a.login, s.labels,
    coalesce(c.pod_name, '')::text AS pod, coalesce(c.pool, '')::text AS pool, coalesce(c.state, '')::text AS claim,
    coalesce(c.runner_name, '')::text AS registered, c.claimed_at, c.minted_at, c.acknowledged_at, w.received_at, w.approved_at
FROM workflow_jobs w
JOIN accounts a ON a.id = w.account_id
JOIN label_sets s ON s.label_key = w.label_key
LEFT JOIN runner_claims c ON c.job_id = w.id AND c.state IN ('claimed', 'minted', 'executing')
WHERE w.id = @id;

-- name: SessionOfJob :one
-- Of the runner that GitHub has named: one that ends loses its claim, but not its session.
SELECT s.namespace, s.pod_name, s.pool, s.claimed_at, s.started_at, s.acknowledged_at, s.exit_code, s.lost_at
FROM runner_sessions s
WHERE s.executed_job_id = @job_id::bigint AND s.runner_name = @runner_name
ORDER BY s.started_at DESC LIMIT 1;

-- name: OlderInLane :one
-- As far as it is worth counting.
SELECT count(*) FROM (
    SELECT 1 FROM workflow_jobs w
    WHERE w.label_key = @label_key AND w.account_id = @account_id AND w.state = 'queued' AND w.held = ''
        AND (w.queued_at, w.id) < (@queued_at::timestamptz, @id::bigint)
    LIMIT @most) older;

-- name: RunningOfRepository :many
SELECT c.platform, count(*) AS jobs
FROM runner_claims c CROSS JOIN LATERAL (SELECT w.repository FROM workflow_jobs w WHERE w.id = c.job_id LIMIT 1) j
WHERE c.account_id = @account_id::bigint AND j.repository = @repository::text AND c.state IN ('claimed', 'minted', 'executing')
GROUP BY c.platform;
