-- Repair, in this order: rows without a job go, each job gets one place, counts follow from the places.

-- name: repair_ready_orphans()
DELETE FROM jobyard_ready WHERE NOT EXISTS (SELECT 1 FROM jobyard_job j WHERE j.sequence = jobyard_ready.sequence
  AND j.queue = jobyard_ready.queue AND j.group_name = jobyard_ready.group_name AND -j.priority = jobyard_ready.urgency)

-- name: repair_delayed_orphans()
DELETE FROM jobyard_delayed WHERE NOT EXISTS (SELECT 1 FROM jobyard_job j
  WHERE j.sequence = jobyard_delayed.sequence AND j.run_at = jobyard_delayed.run_at)

-- name: repair_lease_orphans()
DELETE FROM jobyard_lease WHERE sequence NOT IN (SELECT sequence FROM jobyard_job)
  OR sequence IN (SELECT sequence FROM jobyard_done)

-- name: repair_done_orphans()
DELETE FROM jobyard_done WHERE sequence NOT IN (SELECT sequence FROM jobyard_job)

-- name: repair_extra_orphans()
DELETE FROM jobyard_extra WHERE sequence NOT IN (SELECT sequence FROM jobyard_job)

-- name: repair_tag_orphans()
DELETE FROM jobyard_tag WHERE sequence NOT IN (SELECT sequence FROM jobyard_job)

-- name: repair_history_orphans()
DELETE FROM jobyard_history WHERE sequence NOT IN (SELECT sequence FROM jobyard_job)

-- name: repair_job_flags()
UPDATE jobyard_job SET flags = flags | 32
WHERE flags & 48 = 0 AND sequence IN (SELECT sequence FROM jobyard_history)

-- name: repair_lease_flags()
UPDATE jobyard_lease AS l SET flags = (SELECT j.flags FROM jobyard_job j WHERE j.sequence = l.sequence)
WHERE sequence IN (SELECT sequence FROM jobyard_job)

-- name: repair_done_flags()
UPDATE jobyard_done AS d SET flags = (SELECT j.flags FROM jobyard_job j WHERE j.sequence = d.sequence)
WHERE sequence IN (SELECT sequence FROM jobyard_job)

-- name: repair_delayed_twice()
DELETE FROM jobyard_delayed WHERE sequence IN (SELECT sequence FROM jobyard_lease UNION ALL SELECT sequence FROM jobyard_done)

-- name: repair_ready_twice()
DELETE FROM jobyard_ready WHERE sequence IN (SELECT sequence FROM jobyard_lease
  UNION ALL SELECT sequence FROM jobyard_done UNION ALL SELECT sequence FROM jobyard_delayed)

-- name: repair_lost_jobs()
-- A due one joins the line with the next transaction.
INSERT INTO jobyard_delayed (run_at, sequence) SELECT run_at, sequence FROM jobyard_job WHERE sequence NOT IN (
  SELECT sequence FROM jobyard_ready UNION ALL SELECT sequence FROM jobyard_delayed
  UNION ALL SELECT sequence FROM jobyard_lease UNION ALL SELECT sequence FROM jobyard_done)

-- name: repair_queue_rows()
INSERT OR IGNORE INTO jobyard_queue (name, keep_completed, keep_failed, keep_completed_seconds, keep_failed_seconds,
  keep_at_most, paused, turn, waiting, delayed, running, completed, failed, cancelled, removed_by_cap)
SELECT DISTINCT queue, 100, 50, 3600.0, 604800.0, 100000, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM jobyard_job

-- name: repair_group_rows()
INSERT OR IGNORE INTO jobyard_group (queue, name, paused, turn, waiting, delayed, running, open)
SELECT DISTINCT j.queue, j.group_name, 0, 0, 0, 0, 0, 0 FROM jobyard_job j
LEFT JOIN jobyard_done d ON d.sequence = j.sequence WHERE d.sequence IS NULL

-- name: repair_queue_counts()
UPDATE jobyard_queue AS q SET
  waiting = (SELECT count(*) FROM jobyard_ready r WHERE r.queue = q.name),
  delayed = (SELECT count(*) FROM jobyard_delayed d JOIN jobyard_job j ON j.sequence = d.sequence WHERE j.queue = q.name),
  running = (SELECT count(*) FROM jobyard_lease l WHERE l.queue = q.name),
  completed = (SELECT count(*) FROM jobyard_done d WHERE d.queue = q.name AND d.state = 'COMPLETED'),
  failed = (SELECT count(*) FROM jobyard_done d WHERE d.queue = q.name AND d.state IN ('FAILED', 'TIMEOUT')),
  cancelled = (SELECT count(*) FROM jobyard_done d WHERE d.queue = q.name AND d.state = 'CANCELLED')

-- name: repair_group_counts()
WITH counted AS (SELECT queue, name, sum(w) AS w, sum(d) AS d, sum(r) AS r FROM (
    SELECT queue, group_name AS name, 1 AS w, 0 AS d, 0 AS r FROM jobyard_ready
    UNION ALL SELECT j.queue, j.group_name, 0, 1, 0 FROM jobyard_delayed x JOIN jobyard_job j ON j.sequence = x.sequence
    UNION ALL SELECT queue, group_name, 0, 0, 1 FROM jobyard_lease) GROUP BY queue, name)
UPDATE jobyard_group AS g SET (waiting, delayed, running) = (
  SELECT coalesce(sum(c.w), 0), coalesce(sum(c.d), 0), coalesce(sum(c.r), 0) FROM counted c
  WHERE c.queue = g.queue AND c.name = g.name)

-- name: repair_open_groups()
UPDATE jobyard_group AS g SET open = (SELECT g.waiting > 0 AND g.paused = 0 AND
  (g.own_limit IS NOT NULL AND g.running < g.own_limit OR g.own_limit IS NULL AND
    (g.name = '' OR q.max_per_group IS NULL OR g.running < q.max_per_group))
  FROM jobyard_queue q WHERE q.name = g.queue)

-- name: repair_unique_keys()
DELETE FROM jobyard_unique WHERE until IS NULL AND job_id NOT IN (SELECT j.id FROM jobyard_job j
  LEFT JOIN jobyard_done d ON d.sequence = j.sequence WHERE d.sequence IS NULL)

-- name: repair_unarmed_ticks()
DELETE FROM jobyard_tick WHERE schedule NOT IN (SELECT schedule FROM jobyard_armed)

-- name: repair_decided_instants()
UPDATE jobyard_armed AS a SET decided_until = max(decided_until, coalesce(
  (SELECT max(t.at) FROM jobyard_tick t WHERE t.schedule = a.schedule), decided_until))
