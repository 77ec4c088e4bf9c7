-- name: load_jobs(now, ids) -> the columns of `job_from_row`, then the flags, in no order
SELECT j.sequence, j.id, j.kind, j.queue, j.group_name, j.priority, j.payload, j.max_attempts, j.used, j.deaths,
  j.timeout_seconds, j.backoff, j.run_at, j.created_at, j.unique_key, j.tags,
  CASE WHEN j.run_at > n.now THEN j.waiting_for END AS waiting_for,
  l.attempt, l.started_at, l.worker, l.external_id, l.cancel,
  d.state, d.attempt, d.started_at, d.finished_at, d.worker, d.result, d.reason, j.flags
FROM (SELECT {schema}.jobyard_now($1) AS now) n CROSS JOIN unnest($2::text[]) u(id)
JOIN {schema}.jobyard_job j ON j.id = u.id
LEFT JOIN {schema}.jobyard_lease l ON l.sequence = j.sequence
LEFT JOIN {schema}.jobyard_done d ON d.sequence = j.sequence

-- name: list_extras(sequences, kinds of extras) -> sequence, kind, at, finished_at, data, in order
SELECT e.sequence, e.what, e.at, e.finished_at, e.data FROM {schema}.jobyard_extra e
WHERE e.sequence = ANY ($1::bigint[]) AND e.what = ANY ($2::text[]) ORDER BY e.sequence, e.what, e.number

-- name: change(now, action, ids, reason, priority) -> per id that exists: id, whether its state allowed the action
SELECT id, fits FROM {schema}.jobyard_change(
  p_now => $1, p_action => $2, p_ids => $3, p_reason => $4, p_priority => $5)

-- name: delete_expired(now, limit for each of the three)
-- Delete expired unique keys, records and workers.
SELECT {schema}.jobyard_sweep(p_now => $1, p_limit => $2)

-- name: prunable_queues() -> names of the queues that hold more finished jobs than they keep, in order
SELECT k.name FROM {schema}.jobyard_queue k
WHERE k.completed > k.keep_completed OR k.failed + k.cancelled > k.keep_failed ORDER BY k.name

-- name: prune_queue(now, queue, limit) -> number of jobs that were removed
SELECT {schema}.jobyard_prune_queue(p_now => $1, p_queue => $2, p_limit => $3)

-- name: delete_idle_groups(queue, number of groups to examine) -> whether more groups of the queue are left to examine
SELECT {schema}.jobyard_forget_groups(p_queue => $1, p_many => $2)
