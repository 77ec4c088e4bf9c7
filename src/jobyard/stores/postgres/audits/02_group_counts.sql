-- group {0}: its counts say {1}, its jobs are {2} (waiting/delayed/running)
WITH kept AS (
  SELECT queue, name, sum(w) w, sum(d) d, sum(r) r FROM (
    SELECT queue, name, waiting w, delayed d, running r FROM {schema}.jobyard_group
    UNION ALL SELECT queue, group_name, waiting, delayed, running FROM {schema}.jobyard_inbox) u GROUP BY 1, 2),
counted AS (
  SELECT queue, name, sum(w) w, sum(d) d, sum(r) r FROM (
    SELECT queue, group_name AS name, 1 w, 0 d, 0 r FROM {schema}.jobyard_ready
    UNION ALL SELECT queue, group_name, 0, 1, 0 FROM {schema}.jobyard_delayed
    UNION ALL SELECT queue, group_name, 0, 0, 1 FROM {schema}.jobyard_lease) u GROUP BY 1, 2)
SELECT coalesce(k.queue, c.queue) || '/' || coalesce(k.name, c.name),
  concat_ws('/', coalesce(k.w, 0), coalesce(k.d, 0), coalesce(k.r, 0)),
  concat_ws('/', coalesce(c.w, 0), coalesce(c.d, 0), coalesce(c.r, 0))
FROM kept k FULL JOIN counted c ON c.queue = k.queue AND c.name = k.name
WHERE (coalesce(k.w, 0), coalesce(k.d, 0), coalesce(k.r, 0)) <> (coalesce(c.w, 0), coalesce(c.d, 0), coalesce(c.r, 0))
