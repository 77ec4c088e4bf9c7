-- group {0} has a ready job at {2}, before its cursor {1}
SELECT g.queue || '/' || g.name, g.head, min(r.ord) FROM {schema}.jobyard_group g
JOIN {schema}.jobyard_ready r ON r.queue = g.queue AND r.group_name = g.name
WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = g.queue AND i.group_name = g.name)
GROUP BY 1, 2 HAVING min(r.ord) < g.head
