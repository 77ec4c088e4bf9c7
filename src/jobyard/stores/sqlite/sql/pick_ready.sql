-- in: queue, group, how many. out: the group's next jobs in the rule's order, with what a worker needs.
SELECT r.urgency, j.sequence, j.id, j.kind, j.max_attempts, j.used, j.deaths, j.payload, j.private_payload,
  j.timeout_seconds, j.backoff, j.signal, j.flags
FROM jobyard_ready r CROSS JOIN jobyard_job j ON j.sequence = r.sequence
WHERE r.queue = ? AND r.group_name = ? ORDER BY r.urgency, r.sequence LIMIT ?
