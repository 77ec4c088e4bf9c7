-- in: worker. out: its jobs that were asked to stop.
SELECT j.id, l.sequence, l.token, l.cancel FROM jobyard_lease l CROSS JOIN jobyard_job j ON j.sequence = l.sequence
WHERE l.worker = ? AND l.cancel IS NOT NULL
