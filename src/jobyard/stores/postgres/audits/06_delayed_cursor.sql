-- queue {0} has a delayed job at {2}, before its cursor {1}
SELECT q.name, q.delayed_from, min(d.run_at) FROM {schema}.jobyard_queue q
JOIN {schema}.jobyard_delayed d ON d.queue = q.name
WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = q.name)
GROUP BY 1, 2 HAVING min(d.run_at) < q.delayed_from
