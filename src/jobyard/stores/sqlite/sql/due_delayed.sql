-- in: now, how many. out: jobs whose time has come, in the order in which they join.
SELECT d.run_at, d.sequence, j.queue, j.group_name, j.priority, j.waiting_for
FROM jobyard_delayed d CROSS JOIN jobyard_job j ON j.sequence = d.sequence
WHERE d.run_at <= ? ORDER BY d.run_at, d.sequence LIMIT ?
