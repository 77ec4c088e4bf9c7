-- in: JSON list of groups, queue. out: place in the list, then the group's very next job, with what a worker needs.
SELECT n.key, -j.priority, j.sequence, j.id, j.kind, j.max_attempts, j.used, j.deaths, j.payload, j.private_payload,
  j.timeout_seconds, j.backoff, j.signal, j.flags
FROM json_each(?) n CROSS JOIN jobyard_job j ON j.sequence = (
  SELECT r.sequence FROM jobyard_ready r WHERE r.queue = ? AND r.group_name = n.value
  ORDER BY r.urgency, r.sequence LIMIT 1)
