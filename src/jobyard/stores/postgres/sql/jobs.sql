-- name: load_jobs(now, ids) -> the columns of `job_from_row`, then the parent and the flags, in no order
SELECT j.sequence, j.id, j.kind, j.queue, j.group_name, j.priority, j.payload, j.max_attempts, j.used, j.deaths,
  j.timeout_seconds, j.backoff, j.run_at, j.created_at, j.unique_key, j.tags,
  CASE WHEN j.run_at > n.now THEN j.waiting_for END AS waiting_for,
  l.attempt, l.started_at, l.worker, l.external_id,
  CASE WHEN d.sequence IS NULL THEN coalesce(l.cancel, j.cancel) END AS cancel,
  d.state, d.attempt, d.started_at, d.finished_at, d.worker, d.result, d.reason, j.parent, j.flags
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

-- name: delete_expired(now, limit for each kind)
-- Delete expired unique keys, records, workers and waits for the end of a job.
SELECT {schema}.jobyard_sweep(p_now => $1, p_limit => $2)

-- name: prunable_queues(now) -> names of the queues that have jobs to remove, in order
-- Of each queue the oldest finished jobs are read, without a lock.
SELECT k.name FROM {schema}.jobyard_queue k
WHERE (k.completed > k.keep_completed OR k.failed + k.cancelled > k.keep_failed)
  AND (k.completed + k.failed + k.cancelled > k.keep_at_most
    OR k.completed > k.keep_completed AND {schema}.jobyard_oldest_end(k.name, 0, k.completed_from)
      <= {schema}.jobyard_now($1) - round(k.keep_completed_seconds * 1000)
    OR k.failed + k.cancelled > k.keep_failed AND {schema}.jobyard_oldest_end(k.name, 1, k.failed_from)
      <= {schema}.jobyard_now($1) - round(k.keep_failed_seconds * 1000))
ORDER BY k.name

-- name: register_awaited(now, job id, wait in ms, seconds, number)
-- Only in queues that keep ended jobs for less than these seconds, or at most fewer than this number.
INSERT INTO {schema}.jobyard_awaited AS a (sequence, until)
SELECT j.sequence, {schema}.jobyard_now($1) + $3 FROM {schema}.jobyard_job j JOIN {schema}.jobyard_queue k ON k.name = j.queue
WHERE j.id = $2 AND (least(k.keep_completed_seconds, k.keep_failed_seconds) < $4 OR k.keep_at_most < $5)
ON CONFLICT (sequence) DO UPDATE SET until = greatest(a.until, excluded.until)

-- name: prune_queue(now, queue, limit) -> number of jobs that were removed
SELECT {schema}.jobyard_prune_queue(p_now => $1, p_queue => $2, p_limit => $3)

-- name: delete_idle_groups(queue, number of groups to examine) -> whether more groups of the queue are left to examine
SELECT {schema}.jobyard_forget_groups(p_queue => $1, p_many => $2)

-- name: job_at_or_before(sequence) -> sequence, created_at of the job with the highest sequence up to this one
SELECT j.sequence, j.created_at FROM {schema}.jobyard_job j WHERE j.sequence <= $1 ORDER BY j.sequence DESC LIMIT 1
