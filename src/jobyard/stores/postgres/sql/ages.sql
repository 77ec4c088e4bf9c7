-- in: how many groups to look at. out: per queue by name: since when its oldest due job is due, its oldest running job runs.
-- A group's jobs stand by ord = (-priority << 42) + sequence: from the first of one priority to the first of the next.
SELECT k.name, w.since, l.since
FROM {schema}.jobyard_queue k
LEFT JOIN (SELECT queue, min(started_at) AS since FROM {schema}.jobyard_lease GROUP BY queue) l ON l.queue = k.name
LEFT JOIN LATERAL (
  SELECT min(f.since) AS since
  FROM (
    SELECT g.name, g.head FROM {schema}.jobyard_group g WHERE g.queue = k.name AND g.waiting > 0 ORDER BY g.name LIMIT $1
  ) g
  CROSS JOIN LATERAL (
    WITH RECURSIVE heads(ord, number) AS (
      (SELECT r.ord, 1 FROM {schema}.jobyard_ready r
       WHERE r.queue = k.name AND r.group_name = g.name AND r.ord >= g.head ORDER BY r.ord LIMIT 1)
      UNION ALL
      SELECT (SELECT r.ord FROM {schema}.jobyard_ready r
              WHERE r.queue = k.name AND r.group_name = g.name AND r.ord >= ((h.ord >> 42) + 1) << 42
              ORDER BY r.ord LIMIT 1), h.number + 1
      FROM heads h WHERE h.ord IS NOT NULL AND h.number < $1
    )
    SELECT greatest(j.created_at, j.run_at) AS since
    FROM heads h JOIN {schema}.jobyard_job j ON j.sequence = h.ord & 4398046511103
  ) f
) w ON k.waiting > 0
ORDER BY k.name
