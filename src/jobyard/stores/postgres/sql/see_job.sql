-- in: now (NULL: the server's), ids. out: what a person may see of each, in no order.
SELECT j.sequence, j.id, j.kind, j.queue, j.group_name, j.priority, j.payload, j.max_attempts, j.used, j.deaths,
  j.timeout_seconds, j.backoff, j.run_at, j.created_at, j.unique_key, j.tags,
  CASE WHEN j.run_at > n.now THEN j.waiting_for END AS waiting_for,
  l.attempt, l.started_at, l.worker, l.external_id, l.cancel,
  d.state, d.attempt, d.started_at, d.finished_at, d.worker, d.result, d.reason, j.flags
FROM (SELECT {schema}.jobyard_now($1) AS now) n CROSS JOIN unnest($2::text[]) u(id)
JOIN {schema}.jobyard_job j ON j.id = u.id
LEFT JOIN {schema}.jobyard_lease l ON l.sequence = j.sequence
LEFT JOIN {schema}.jobyard_done d ON d.sequence = j.sequence
