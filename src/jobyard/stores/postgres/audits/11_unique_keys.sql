-- unique key {1} of queue {0} is held by {2}, which is not active
SELECT u.queue, u.key, u.job_id FROM {schema}.jobyard_unique u
LEFT JOIN {schema}.jobyard_job j ON j.id = u.job_id LEFT JOIN {schema}.jobyard_done d ON d.sequence = j.sequence
WHERE u.until IS NULL AND (j.sequence IS NULL OR d.sequence IS NOT NULL)
