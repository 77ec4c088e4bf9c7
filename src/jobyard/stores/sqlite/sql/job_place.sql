-- in: id. out: what a change needs to know of a job and of where it stands.
SELECT j.sequence, j.queue, j.group_name, j.priority, j.used, j.run_at, j.flags, j.unique_key, j.waiting_for, j.tags,
  l.sequence IS NOT NULL, l.token, d.state
FROM jobyard_job j LEFT JOIN jobyard_lease l ON l.sequence = j.sequence
  LEFT JOIN jobyard_done d ON d.sequence = j.sequence
WHERE j.id = ?
