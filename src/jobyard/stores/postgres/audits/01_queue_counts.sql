-- queue {0}: its counts say {1}, its jobs are {2} (waiting/delayed/running/completed/failed/cancelled)
WITH i AS (SELECT queue, sum(waiting) w, sum(delayed) d, sum(running) r, sum(completed) c, sum(failed) f,
             sum(cancelled) x FROM {schema}.jobyard_inbox GROUP BY queue),
kept AS (SELECT q.name, concat_ws('/', q.waiting + coalesce(i.w, 0), q.delayed + coalesce(i.d, 0),
           q.running + coalesce(i.r, 0), q.completed + coalesce(i.c, 0), q.failed + coalesce(i.f, 0),
           q.cancelled + coalesce(i.x, 0)) AS says
         FROM {schema}.jobyard_queue q LEFT JOIN i ON i.queue = q.name),
r AS (SELECT queue, count(*) n FROM {schema}.jobyard_ready GROUP BY queue),
d AS (SELECT queue, count(*) n FROM {schema}.jobyard_delayed GROUP BY queue),
l AS (SELECT queue, count(*) n FROM {schema}.jobyard_lease GROUP BY queue),
e AS (SELECT queue, count(*) FILTER (WHERE state = 'COMPLETED') c,
        count(*) FILTER (WHERE state IN ('FAILED', 'TIMEOUT')) f, count(*) FILTER (WHERE state = 'CANCELLED') x
      FROM {schema}.jobyard_done GROUP BY queue),
counted AS (SELECT q.name, concat_ws('/', coalesce(r.n, 0), coalesce(d.n, 0), coalesce(l.n, 0), coalesce(e.c, 0),
              coalesce(e.f, 0), coalesce(e.x, 0)) AS says
            FROM {schema}.jobyard_queue q LEFT JOIN r ON r.queue = q.name LEFT JOIN d ON d.queue = q.name
            LEFT JOIN l ON l.queue = q.name LEFT JOIN e ON e.queue = q.name)
SELECT kept.name, kept.says, counted.says FROM kept JOIN counted USING (name) WHERE kept.says <> counted.says
