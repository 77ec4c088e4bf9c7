-- in: id. out: the row that a person may see.
SELECT j.sequence, j.id, j.kind, j.queue, j.group_name, j.priority, j.payload, j.max_attempts, j.used, j.deaths,
  j.timeout_seconds, j.backoff, j.run_at, j.created_at, j.unique_key, j.tags, j.waiting_for,
  l.attempt, l.started_at, l.worker, l.external_id, l.cancel,
  d.state, d.attempt, d.started_at, d.finished_at, d.worker, d.result, d.reason
FROM jobyard_job j LEFT JOIN jobyard_lease l ON l.sequence = j.sequence
  LEFT JOIN jobyard_done d ON d.sequence = j.sequence
WHERE j.id = ?
