-- Audit: each statement returns a row for each disagreement.

-- name: audit_queue_running() -> queue, kept, counted
SELECT q.name, q.running, count(l.sequence) FROM jobyard_queue q
LEFT JOIN jobyard_lease l ON l.queue = q.name GROUP BY q.name HAVING q.running <> count(l.sequence)

-- name: audit_queue_waiting() -> queue, kept, counted
SELECT q.name, q.waiting, (SELECT count(*) FROM jobyard_ready r WHERE r.queue = q.name) AS n
FROM jobyard_queue q WHERE q.waiting <> n

-- name: audit_queue_delayed() -> queue, kept, counted
WITH d AS (SELECT j.queue AS queue, count(*) AS n FROM jobyard_delayed d
           JOIN jobyard_job j ON j.sequence = d.sequence GROUP BY j.queue)
SELECT q.name, q.delayed, coalesce(d.n, 0) FROM jobyard_queue q LEFT JOIN d ON d.queue = q.name
WHERE q.delayed <> coalesce(d.n, 0)

-- name: audit_queue_finished() -> queue, kept, counted (completed/failed/cancelled)
WITH d AS (SELECT queue, sum(state = 'COMPLETED') || '/' || sum(state IN ('FAILED', 'TIMEOUT')) || '/' ||
             sum(state = 'CANCELLED') AS n FROM jobyard_done GROUP BY queue)
SELECT q.name, q.completed || '/' || q.failed || '/' || q.cancelled AS kept, coalesce(d.n, '0/0/0') AS counted
FROM jobyard_queue q LEFT JOIN d ON d.queue = q.name WHERE kept <> counted

-- name: audit_group_running() -> queue/group, kept, counted
WITH l AS (SELECT queue, group_name, count(*) AS n FROM jobyard_lease GROUP BY 1, 2)
SELECT g.queue || '/' || g.name, g.running, coalesce(l.n, 0) FROM jobyard_group g
LEFT JOIN l ON l.queue = g.queue AND l.group_name = g.name WHERE g.running <> coalesce(l.n, 0)

-- name: audit_group_waiting() -> queue/group, kept, counted
WITH r AS (SELECT queue, group_name, count(*) AS n FROM jobyard_ready GROUP BY 1, 2)
SELECT g.queue || '/' || g.name, g.waiting, coalesce(r.n, 0) FROM jobyard_group g
LEFT JOIN r ON r.queue = g.queue AND r.group_name = g.name WHERE g.waiting <> coalesce(r.n, 0)

-- name: audit_group_open() -> queue/group, kept, computed from its counts
SELECT g.queue || '/' || g.name, g.open, g.waiting > 0 AND g.paused = 0 AND
  (g.own_limit IS NOT NULL AND g.running < g.own_limit OR g.own_limit IS NULL AND
    (g.name = '' OR q.max_per_group IS NULL OR g.running < q.max_per_group)) AS n
FROM jobyard_group g JOIN jobyard_queue q ON q.name = g.queue WHERE g.open <> n

-- name: audit_group_delayed() -> queue/group, kept, counted
WITH d AS (SELECT j.queue, j.group_name, count(*) AS n FROM jobyard_delayed d
           JOIN jobyard_job j ON j.sequence = d.sequence GROUP BY 1, 2)
SELECT g.queue || '/' || g.name, g.delayed, coalesce(d.n, 0) FROM jobyard_group g
LEFT JOIN d ON d.queue = g.queue AND d.group_name = g.name WHERE g.delayed <> coalesce(d.n, 0)

-- name: audit_missing_groups()
-- -> queue, group, number of its PENDING and RUNNING jobs, where the row of the group or queue is missing
SELECT j.queue, j.group_name, count(*) FROM jobyard_job j
LEFT JOIN jobyard_done d ON d.sequence = j.sequence
WHERE d.sequence IS NULL AND NOT EXISTS (SELECT 1 FROM jobyard_group g JOIN jobyard_queue q ON q.name = g.queue
  WHERE g.queue = j.queue AND g.name = j.group_name) GROUP BY 1, 2

-- name: audit_missing_queues() -> queue, number of its finished jobs, where the row of the queue is missing
SELECT d.queue, count(*) FROM jobyard_done d
WHERE NOT EXISTS (SELECT 1 FROM jobyard_queue q WHERE q.name = d.queue) GROUP BY 1

-- name: audit_unique_keys() -> queue, key, job_id, where the job that holds an ACTIVE key is not active
SELECT u.queue, u.key, u.job_id FROM jobyard_unique u LEFT JOIN jobyard_job j ON j.id = u.job_id
LEFT JOIN jobyard_done d ON d.sequence = j.sequence
WHERE u.until IS NULL AND (j.sequence IS NULL OR d.sequence IS NOT NULL)

-- name: audit_job_places() -> sequence, number of places where the job is (ready, delayed, lease, done), if not 1
SELECT j.sequence, (SELECT count(*) FROM jobyard_ready r WHERE r.queue = j.queue AND r.group_name = j.group_name
      AND r.urgency = -j.priority AND r.sequence = j.sequence)
  + (SELECT count(*) FROM jobyard_delayed d WHERE d.run_at = j.run_at AND d.sequence = j.sequence)
  + (SELECT count(*) FROM jobyard_lease l WHERE l.sequence = j.sequence)
  + (SELECT count(*) FROM jobyard_done d WHERE d.sequence = j.sequence) AS n
FROM jobyard_job j WHERE n <> 1

-- name: audit_ticks() -> schedule, number of ticks after decided_until, decided_until
SELECT t.schedule, count(*), coalesce(a.decided_until, 'not armed') FROM jobyard_tick t
LEFT JOIN jobyard_armed a ON a.schedule = t.schedule
WHERE a.schedule IS NULL OR t.at > a.decided_until GROUP BY 1

-- name: audit_flags() -> sequence, flags, those that follow from the other rows
-- Without the flags of a history it would stay when the job is removed.
SELECT j.sequence, j.flags || '/' || coalesce(l.flags, d.flags, j.flags) AS kept, n || '/' || n AS computed FROM (
  SELECT sequence, CASE WHEN flags & 48 = 0 AND EXISTS (SELECT 1 FROM jobyard_history h
    WHERE h.sequence = jobyard_job.sequence) THEN flags | 32 ELSE flags END AS n FROM jobyard_job) c
JOIN jobyard_job j ON j.sequence = c.sequence LEFT JOIN jobyard_lease l ON l.sequence = j.sequence
LEFT JOIN jobyard_done d ON d.sequence = j.sequence
WHERE j.flags <> n OR l.flags <> n OR (d.flags & ~8) <> (n & ~8)

-- name: audit_orphans() -> table, number of rows without a job
SELECT t, n FROM (
  SELECT 'ready' AS t, count(*) AS n FROM jobyard_ready WHERE sequence NOT IN (SELECT sequence FROM jobyard_job)
  UNION ALL SELECT 'delayed', count(*) FROM jobyard_delayed
    WHERE sequence NOT IN (SELECT sequence FROM jobyard_job)
  UNION ALL SELECT 'lease', count(*) FROM jobyard_lease
    WHERE sequence NOT IN (SELECT sequence FROM jobyard_job)
  UNION ALL SELECT 'done', count(*) FROM jobyard_done
    WHERE sequence NOT IN (SELECT sequence FROM jobyard_job)
  UNION ALL SELECT 'extra', count(*) FROM jobyard_extra
    WHERE sequence NOT IN (SELECT sequence FROM jobyard_job)
  UNION ALL SELECT 'tag', count(*) FROM jobyard_tag
    WHERE sequence NOT IN (SELECT sequence FROM jobyard_job)
  UNION ALL SELECT 'history', count(*) FROM jobyard_history
    WHERE sequence NOT IN (SELECT sequence FROM jobyard_job))
WHERE n > 0
