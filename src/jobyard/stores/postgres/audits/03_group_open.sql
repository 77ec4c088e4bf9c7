-- group {0}: open says {1}, its counts say {2}
SELECT g.queue || '/' || g.name, g.open, g.waiting > 0 AND NOT g.paused AND g.running <
  coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, 9007199254740992) AS n
FROM {schema}.jobyard_group g JOIN {schema}.jobyard_queue q ON q.name = g.queue
WHERE g.open <> (g.waiting > 0 AND NOT g.paused AND g.running <
  coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, 9007199254740992))
