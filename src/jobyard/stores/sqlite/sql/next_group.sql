-- in: queue, group. out: the first place of the group after that one: group, urgency, since when its job is due.
SELECT r.group_name, r.urgency, max(j.created_at, j.run_at)
FROM jobyard_ready r JOIN jobyard_job j ON j.sequence = r.sequence
WHERE r.queue = ? AND r.group_name > ?
ORDER BY r.group_name, r.urgency, r.sequence LIMIT 1
