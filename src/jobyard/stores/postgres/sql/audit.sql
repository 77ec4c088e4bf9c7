-- Each statement returns one sentence per disagreement between a stored count or cursor and the rows behind it.
-- Rows that wait in the inbox are part of the counts.

-- name: audit_queue_counts() -> sentences about counts of queues
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
SELECT format('queue %s: stored counts are %s, its jobs are %s (waiting/delayed/running/completed/failed/cancelled)',
  kept.name, kept.says, counted.says)
FROM kept JOIN counted USING (name) WHERE kept.says <> counted.says

-- name: audit_group_counts() -> sentences about counts of groups
WITH kept AS (
  SELECT queue, name, sum(w) w, sum(d) d, sum(r) r FROM (
    SELECT queue, name, waiting w, delayed d, running r FROM {schema}.jobyard_group
    UNION ALL SELECT queue, group_name, waiting, delayed, running FROM {schema}.jobyard_inbox) u GROUP BY 1, 2),
counted AS (
  SELECT queue, name, sum(w) w, sum(d) d, sum(r) r FROM (
    SELECT queue, group_name AS name, 1 w, 0 d, 0 r FROM {schema}.jobyard_ready
    UNION ALL SELECT queue, group_name, 0, 1, 0 FROM {schema}.jobyard_delayed
    UNION ALL SELECT queue, group_name, 0, 0, 1 FROM {schema}.jobyard_lease) u GROUP BY 1, 2)
SELECT format('group %s/%s: stored counts are %s, its jobs are %s (waiting/delayed/running)',
  coalesce(k.queue, c.queue), coalesce(k.name, c.name),
  concat_ws('/', coalesce(k.w, 0), coalesce(k.d, 0), coalesce(k.r, 0)),
  concat_ws('/', coalesce(c.w, 0), coalesce(c.d, 0), coalesce(c.r, 0)))
FROM kept k FULL JOIN counted c ON c.queue = k.queue AND c.name = k.name
WHERE (coalesce(k.w, 0), coalesce(k.d, 0), coalesce(k.r, 0)) <> (coalesce(c.w, 0), coalesce(c.d, 0), coalesce(c.r, 0))

-- name: audit_open_groups() -> sentences about groups whose `open` does not follow from their counts
SELECT format('group %s/%s: stored as open %s, its counts say %s', s.queue, s.name, s.open, s.should_be) FROM (
  SELECT g.queue, g.name, g.open, g.waiting > 0 AND NOT g.paused AND g.running <
    coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, 9007199254740992) AS should_be
  FROM {schema}.jobyard_group g JOIN {schema}.jobyard_queue q ON q.name = g.queue) s
WHERE s.open <> s.should_be

-- name: audit_line_cursors() -> sentences about open groups before the cursor of their queue
SELECT format('group %s/%s is open at turn %s, before the cursor of its queue (%s)', g.queue, g.name, g.turn, q.line_from)
FROM {schema}.jobyard_group g JOIN {schema}.jobyard_queue q ON q.name = g.queue WHERE g.open AND g.turn < q.line_from

-- name: audit_group_cursors() -> sentences about ready jobs before the cursor of their group
SELECT format('group %s/%s has a ready job at %s, before its cursor (%s)', g.queue, g.name, min(r.ord), g.head)
FROM {schema}.jobyard_group g
JOIN {schema}.jobyard_ready r ON r.queue = g.queue AND r.group_name = g.name
WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = g.queue AND i.group_name = g.name)
GROUP BY g.queue, g.name, g.head HAVING min(r.ord) < g.head

-- name: audit_delayed_cursors() -> sentences about delayed jobs before the cursor of their queue
SELECT format('queue %s has a delayed job at %s, before its cursor (%s)', q.name, min(d.run_at), q.delayed_from)
FROM {schema}.jobyard_queue q JOIN {schema}.jobyard_delayed d ON d.queue = q.name
WHERE (d.run_at, d.sequence) <= (q.delayed_from, q.delayed_after)
  AND NOT EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = q.name)
GROUP BY q.name, q.delayed_from

-- name: audit_inbox_cursors() -> sentences about inbox rows before the cursor of their queue
SELECT format('queue %s has an inbox row of transaction %s, before its cursor (%s)', q.name, min(i.xid), q.inbox_from)
FROM {schema}.jobyard_queue q JOIN {schema}.jobyard_inbox i ON i.queue = q.name
GROUP BY q.name, q.inbox_from HAVING min(i.xid) < q.inbox_from

-- name: audit_finish_cursors() -> sentences about finished jobs before the retention cursor of their queue
SELECT format('queue %s has a finished job numbered %s, before its cursor (%s)', s.name, min(s.finish), s.begins) FROM (
  SELECT q.name, d.finish, CASE d.bucket WHEN 0 THEN q.completed_from ELSE q.failed_from END AS begins
  FROM {schema}.jobyard_queue q JOIN {schema}.jobyard_done d ON d.queue = q.name AND d.finish > 0) s
GROUP BY s.name, s.begins HAVING min(s.finish) < s.begins

-- name: audit_finish_numbers() -> sentences about finished jobs that will never get a finish number
SELECT format('finished job %s of queue %s has no finish number', d.sequence, d.queue) FROM {schema}.jobyard_done d
WHERE d.finish = 0 AND NOT EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = d.queue AND i.ended = d.sequence)

-- name: audit_queue_rows() -> sentences about queues without a row
SELECT format('queue %s has %s jobs but no row', j.queue, count(*)) FROM {schema}.jobyard_job j
WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_queue q WHERE q.name = j.queue) GROUP BY j.queue

-- name: audit_unique_keys() -> sentences about unique keys of jobs that have ended or do not exist
SELECT format('unique key %s of queue %s is held by %s, which is not active', u.key, u.queue, u.job_id)
FROM {schema}.jobyard_unique u
LEFT JOIN {schema}.jobyard_job j ON j.id = u.job_id LEFT JOIN {schema}.jobyard_done d ON d.sequence = j.sequence
WHERE u.until IS NULL AND (j.sequence IS NULL OR d.sequence IS NOT NULL)

-- name: audit_job_states() -> sentences about jobs that are not in exactly one of ready, delayed, lease and done
WITH places AS (
  SELECT ord & 4398046511103 AS s FROM {schema}.jobyard_ready
  UNION ALL SELECT sequence FROM {schema}.jobyard_delayed UNION ALL SELECT sequence FROM {schema}.jobyard_lease
  UNION ALL SELECT sequence FROM {schema}.jobyard_done),
counted AS (SELECT s, count(*) n FROM places GROUP BY s)
SELECT format('job %s has %s state rows%s', coalesce(j.sequence, c.s), coalesce(c.n, 0),
  CASE WHEN j.sequence IS NULL THEN ' but does not exist' ELSE '' END)
FROM {schema}.jobyard_job j FULL JOIN counted c ON c.s = j.sequence
WHERE j.sequence IS NULL OR coalesce(c.n, 0) <> 1

-- name: audit_ready_order() -> sentences about ready jobs whose position does not follow from their priority
SELECT format('job %s is ready at %s, its priority says %s', j.sequence, r.ord, (-j.priority::bigint << 42) + j.sequence)
FROM {schema}.jobyard_ready r JOIN {schema}.jobyard_job j ON j.sequence = r.ord & 4398046511103
WHERE r.ord <> (-j.priority::bigint << 42) + j.sequence OR r.queue <> j.queue OR r.group_name <> j.group_name

-- name: audit_orphans() -> sentences about extras, tags and histories without a job
SELECT format('%s rows of %s without a job', n, t) FROM (
  SELECT 'extra' AS t, count(*) AS n FROM {schema}.jobyard_extra e
    WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.sequence = e.sequence)
  UNION ALL SELECT 'tag', count(*) FROM {schema}.jobyard_tag e
    WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.sequence = e.sequence)
  UNION ALL SELECT 'history', count(*) FROM {schema}.jobyard_history e
    WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.sequence = e.sequence)
  UNION ALL SELECT 'scope', count(*) FROM {schema}.jobyard_scope e
    WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.sequence = e.sequence)) u
WHERE n > 0

-- name: audit_scopes() -> sentences about scopes whose counts do not follow from their entries
WITH counted AS (
  SELECT h.sequence, h.scope, count(*) AS entries, count(*) FILTER (WHERE h.number <= s.taken_to) AS taken
  FROM {schema}.jobyard_history h LEFT JOIN {schema}.jobyard_scope s ON s.sequence = h.sequence AND s.scope = h.scope
  WHERE h.scope <> '' GROUP BY h.sequence, h.scope)
SELECT format('history of job %s, scope "%s": stored counts are %s/%s, its entries are %s/%s (all/taken)',
  coalesce(s.sequence, c.sequence), coalesce(s.scope, c.scope), coalesce(s.entries, 0), coalesce(s.taken, 0),
  coalesce(c.entries, 0), coalesce(c.taken, 0))
FROM {schema}.jobyard_scope s FULL JOIN counted c ON c.sequence = s.sequence AND c.scope = s.scope
WHERE (coalesce(s.entries, 0), coalesce(s.taken, 0)) <> (coalesce(c.entries, 0), coalesce(c.taken, 0))

-- name: audit_history_flags() -> sentences about jobs whose history would stay when they are deleted
SELECT format('job %s has a history but is not marked so', j.sequence) FROM {schema}.jobyard_job j
WHERE j.flags & 64 = 0 AND EXISTS (SELECT FROM {schema}.jobyard_history h WHERE h.sequence = j.sequence)

-- name: audit_decided_ticks() -> sentences about ticks after the last decided instant of their schedule
SELECT format('schedule %s has %s ticks after its last decided instant (%s)', t.schedule, count(*),
  coalesce(a.decided_until::text, 'not armed'))
FROM {schema}.jobyard_tick t LEFT JOIN {schema}.jobyard_armed a ON a.schedule = t.schedule
WHERE a.schedule IS NULL OR t.at > a.decided_until GROUP BY t.schedule, a.decided_until

-- name: audit_kept_ticks() -> sentences about counts of ticks
SELECT format('schedule %s: the stored count of ticks is %s, it has %s', a.schedule, a.kept, count(t.at))
FROM {schema}.jobyard_armed a LEFT JOIN {schema}.jobyard_tick t ON t.schedule = a.schedule AND t.at >= a.kept_from
GROUP BY a.schedule, a.kept HAVING count(t.at) <> a.kept OR count(t.at) > 100

-- name: audit_logs() -> sentences about logs with an entry after their last number
SELECT format('log %s: the stored last number is %s, its last entry is %s', l.name, e.number, max(l.number))
FROM {schema}.jobyard_log l LEFT JOIN {schema}.jobyard_log_end e ON e.name = l.name
GROUP BY l.name, e.number HAVING e.number IS NULL OR max(l.number) > e.number
