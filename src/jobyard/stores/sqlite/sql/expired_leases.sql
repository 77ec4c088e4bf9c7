-- in: now, how many. out: leases that ran out. The table holds running jobs only, so a scan is short.
SELECT l.sequence, l.token, j.id, l.queue, l.group_name, l.worker, l.attempt, j.deaths, l.cancel,
  l.started_at, l.flags
FROM jobyard_lease l CROSS JOIN jobyard_job j ON j.sequence = l.sequence
WHERE l.expires_at <= ? ORDER BY l.expires_at, l.sequence LIMIT ?
