-- in: queue, group (NULL: any), how many. out: ids of some running jobs, oldest first.
SELECT j.id FROM {schema}.jobyard_lease l JOIN {schema}.jobyard_job j ON j.sequence = l.sequence
WHERE l.queue = $1 AND ($2::text IS NULL OR l.group_name = $2) ORDER BY l.sequence LIMIT $3
