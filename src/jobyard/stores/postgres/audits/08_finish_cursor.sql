-- queue {0} has a finished job numbered {2}, before its cursor {1}
SELECT q.name, CASE d.bucket WHEN 0 THEN q.completed_from ELSE q.failed_from END, min(d.finish)
FROM {schema}.jobyard_queue q JOIN {schema}.jobyard_done d ON d.queue = q.name AND d.finish > 0
GROUP BY 1, 2 HAVING min(d.finish) < min(CASE d.bucket WHEN 0 THEN q.completed_from ELSE q.failed_from END)
