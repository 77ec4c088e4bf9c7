-- Repair, in this order and in one transaction: counts follow from the rows of jobs, minus what waits in the inbox.

-- name: repair_lock()
LOCK TABLE {schema}.jobyard_queue, {schema}.jobyard_group, {schema}.jobyard_inbox, {schema}.jobyard_ready,
  {schema}.jobyard_delayed, {schema}.jobyard_lease, {schema}.jobyard_done, {schema}.jobyard_scope,
  {schema}.jobyard_history IN SHARE ROW EXCLUSIVE MODE

-- name: repair_queue_rows()
INSERT INTO {schema}.jobyard_queue (name) SELECT DISTINCT queue FROM {schema}.jobyard_job ON CONFLICT DO NOTHING

-- name: repair_group_rows()
INSERT INTO {schema}.jobyard_group (queue, name) SELECT queue, group_name FROM {schema}.jobyard_ready
UNION SELECT queue, group_name FROM {schema}.jobyard_delayed UNION SELECT queue, group_name FROM {schema}.jobyard_lease
ON CONFLICT DO NOTHING

-- name: repair_queue_counts()
WITH i AS (SELECT queue, sum(waiting) w, sum(delayed) d, sum(running) r, sum(completed) c, sum(failed) f,
             sum(cancelled) x FROM {schema}.jobyard_inbox GROUP BY queue),
r AS (SELECT queue, count(*) n FROM {schema}.jobyard_ready GROUP BY queue),
d AS (SELECT queue, count(*) n FROM {schema}.jobyard_delayed GROUP BY queue),
l AS (SELECT queue, count(*) n FROM {schema}.jobyard_lease GROUP BY queue),
e AS (SELECT queue, count(*) FILTER (WHERE state = 'COMPLETED') c,
        count(*) FILTER (WHERE state IN ('FAILED', 'TIMEOUT')) f, count(*) FILTER (WHERE state = 'CANCELLED') x
      FROM {schema}.jobyard_done GROUP BY queue)
UPDATE {schema}.jobyard_queue q SET
  waiting = coalesce(r.n, 0) - coalesce(i.w, 0), delayed = coalesce(d.n, 0) - coalesce(i.d, 0),
  running = coalesce(l.n, 0) - coalesce(i.r, 0), completed = coalesce(e.c, 0) - coalesce(i.c, 0),
  failed = coalesce(e.f, 0) - coalesce(i.f, 0), cancelled = coalesce(e.x, 0) - coalesce(i.x, 0)
FROM {schema}.jobyard_queue s LEFT JOIN i ON i.queue = s.name LEFT JOIN r ON r.queue = s.name
LEFT JOIN d ON d.queue = s.name LEFT JOIN l ON l.queue = s.name LEFT JOIN e ON e.queue = s.name
WHERE s.name = q.name

-- name: repair_group_counts()
WITH counted AS (
  SELECT queue, name, sum(w) w, sum(d) d, sum(r) r FROM (
    SELECT queue, group_name AS name, 1 w, 0 d, 0 r FROM {schema}.jobyard_ready
    UNION ALL SELECT queue, group_name, 0, 1, 0 FROM {schema}.jobyard_delayed
    UNION ALL SELECT queue, group_name, 0, 0, 1 FROM {schema}.jobyard_lease
    UNION ALL SELECT queue, group_name, -waiting, -delayed, -running FROM {schema}.jobyard_inbox) u GROUP BY 1, 2)
UPDATE {schema}.jobyard_group g SET
  waiting = coalesce(c.w, 0), delayed = coalesce(c.d, 0), running = coalesce(c.r, 0)
FROM {schema}.jobyard_group s LEFT JOIN counted c ON c.queue = s.queue AND c.name = s.name
WHERE s.queue = g.queue AND s.name = g.name

-- name: repair_open_groups()
-- A lower cursor is always right: it only costs a longer scan.
UPDATE {schema}.jobyard_group g SET
  open = g.waiting > 0 AND NOT g.paused AND g.running <
    coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, 9007199254740992),
  head = least(g.head, (SELECT min(r.ord) FROM {schema}.jobyard_ready r WHERE r.queue = g.queue AND r.group_name = g.name))
FROM {schema}.jobyard_queue q WHERE q.name = g.queue

-- name: repair_cursors()
UPDATE {schema}.jobyard_queue q SET
  line_from = least(line_from, (SELECT min(g.turn) FROM {schema}.jobyard_group g WHERE g.queue = q.name AND g.open)),
  inbox_from = least(inbox_from, (SELECT min(i.xid) FROM {schema}.jobyard_inbox i WHERE i.queue = q.name)),
  delayed_from = least(delayed_from, (SELECT min(d.run_at) FROM {schema}.jobyard_delayed d WHERE d.queue = q.name)),
  delayed_after = 0,
  completed_from = least(completed_from, (SELECT min(d.finish) FROM {schema}.jobyard_done d
    WHERE d.queue = q.name AND d.bucket = 0 AND d.finish > 0)),
  failed_from = least(failed_from, (SELECT min(d.finish) FROM {schema}.jobyard_done d
    WHERE d.queue = q.name AND d.bucket = 1 AND d.finish > 0))

-- name: repair_unique_keys()
DELETE FROM {schema}.jobyard_unique u WHERE u.until IS NULL AND NOT EXISTS (
  SELECT FROM {schema}.jobyard_job j LEFT JOIN {schema}.jobyard_done d ON d.sequence = j.sequence
  WHERE j.id = u.job_id AND d.sequence IS NULL)

-- name: repair_orphaned_entries()
DELETE FROM {schema}.jobyard_history h
WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.sequence = h.sequence)

-- name: repair_orphaned_scopes()
DELETE FROM {schema}.jobyard_scope s
WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.sequence = s.sequence)

-- name: repair_scope_rows()
INSERT INTO {schema}.jobyard_scope (sequence, scope)
SELECT DISTINCT h.sequence, h.scope FROM {schema}.jobyard_history h WHERE h.scope <> '' ON CONFLICT DO NOTHING

-- name: repair_scopes()
UPDATE {schema}.jobyard_scope s SET
  entries = (SELECT count(*) FROM {schema}.jobyard_history h WHERE h.sequence = s.sequence AND h.scope = s.scope),
  taken = (SELECT count(*) FROM {schema}.jobyard_history h
           WHERE h.sequence = s.sequence AND h.scope = s.scope AND h.number <= s.taken_to)

-- name: repair_history_flags()
UPDATE {schema}.jobyard_job j SET flags = j.flags | 64
WHERE j.flags & 64 = 0 AND EXISTS (SELECT FROM {schema}.jobyard_history h WHERE h.sequence = j.sequence)
