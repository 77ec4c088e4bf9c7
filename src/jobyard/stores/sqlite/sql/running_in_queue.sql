-- in: queue. out: ids of some running jobs.
SELECT j.id FROM jobyard_lease l CROSS JOIN jobyard_job j ON j.sequence = l.sequence
WHERE l.queue = ? ORDER BY l.sequence LIMIT 10
