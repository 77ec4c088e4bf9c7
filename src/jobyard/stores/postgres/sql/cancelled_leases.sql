-- in: worker. out: its jobs that were asked to stop.
SELECT j.id, l.sequence, l.token, l.cancel FROM {schema}.jobyard_lease l
JOIN {schema}.jobyard_job j ON j.sequence = l.sequence
WHERE l.worker = $1 AND l.cancel IS NOT NULL ORDER BY l.sequence
