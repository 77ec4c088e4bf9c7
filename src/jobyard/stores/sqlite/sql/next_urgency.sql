-- in: queue, group, urgency. out: the group's first place after all of that urgency: group, urgency, since when its job is due.
SELECT r.group_name, r.urgency, max(j.created_at, j.run_at)
FROM jobyard_ready r JOIN jobyard_job j ON j.sequence = r.sequence
WHERE r.queue = ? AND r.group_name = ? AND r.urgency > ?
ORDER BY r.urgency, r.sequence LIMIT 1
