-- name: configure(now, queue, then the fields of `QueueSettings`)
SELECT {schema}.jobyard_configure(
  p_now => $1, p_queue => $2, p_max_running => $3, p_max_per_group => $4, p_max_waiting => $5,
  p_max_waiting_per_group => $6, p_keep_completed => $7, p_keep_failed => $8, p_keep_seconds => $9)

-- name: pause_queue(queue, paused)
SELECT {schema}.jobyard_pause_queue(p_queue => $1, p_paused => $2)

-- name: set_group(now, queue, group, paused (NULL: unchanged), whether the limit changes, limit)
SELECT {schema}.jobyard_set_group(
  p_now => $1, p_queue => $2, p_group => $3, p_paused => $4, p_has_limit => $5, p_limit => $6)

-- name: fold_inbox(now, queues (empty: all))
-- Bring the counts up to date before they are read.
SELECT {schema}.jobyard_tidy(p_now => $1, p_queues => $2)

-- name: list_queues() -> name, settings in the order of `QueueSettings`, paused, counts; by name
SELECT k.name, k.max_running, k.max_per_group, k.max_waiting, k.max_waiting_per_group, k.keep_completed, k.keep_failed,
  k.keep_seconds, k.paused, k.waiting, k.delayed, k.running, k.completed, k.failed, k.cancelled
FROM {schema}.jobyard_queue k ORDER BY k.name

-- name: next_queue(name) -> name of the next queue, if any
SELECT k.name FROM {schema}.jobyard_queue k WHERE k.name > $1 ORDER BY k.name LIMIT 1

-- name: load_queue(name) -> name, limits, paused, turn, number of running jobs
SELECT k.name, k.max_running, k.max_per_group, k.paused, k.turn, k.running
FROM {schema}.jobyard_queue k WHERE k.name = $1

-- name: list_groups(queue, name after which to start (NULL: from the start; jobs without a group come first), limit)
-- -> groups that have jobs, a limit or a pause: name, limit, paused, waiting, delayed, running; by name
SELECT g.name, g.own_limit, g.paused, g.waiting, g.delayed, g.running FROM {schema}.jobyard_group g
WHERE g.queue = $1 AND ($2::text IS NULL OR g.name > $2)
  AND (g.waiting <> 0 OR g.delayed <> 0 OR g.running <> 0 OR g.paused OR g.own_limit IS NOT NULL)
ORDER BY g.name LIMIT $3

-- name: load_group(queue, name) -> limit, paused, turn, waiting, running
SELECT g.own_limit, g.paused, g.turn, g.waiting, g.running FROM {schema}.jobyard_group g
WHERE g.queue = $1 AND g.name = $2

-- name: ages(number of groups, and of priorities in each, to examine)
-- -> per queue by name: since when its oldest due job is due, since when its oldest running job runs
-- Jobs of a group are ordered by ord = (-priority << 42) + sequence: jump from the first job of one priority to the
-- first of the next.
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

-- name: count_jobs_ahead(queue, group, ord, cap) -> number of due jobs of the group before this ord, at most the cap
SELECT count(*) FROM (SELECT FROM {schema}.jobyard_ready r
  WHERE r.queue = $1 AND r.group_name = $2 AND r.ord < $3 LIMIT $4) s

-- name: is_in_line(queue, group, ord) -> whether the job is there
SELECT EXISTS (SELECT FROM {schema}.jobyard_ready r WHERE r.queue = $1 AND r.group_name = $2 AND r.ord = $3)

-- name: count_groups_ahead(queue, turn, group, cap) -> number of other open groups before this turn, at most the cap
SELECT count(*) FROM (SELECT FROM {schema}.jobyard_group g
  WHERE g.queue = $1 AND g.open AND g.turn < $2 AND g.name <> $3 LIMIT $4) s

-- name: running_ids(queue, group (NULL: any), limit) -> ids of running jobs, oldest first
SELECT j.id FROM {schema}.jobyard_lease l JOIN {schema}.jobyard_job j ON j.sequence = l.sequence
WHERE l.queue = $1 AND ($2::text IS NULL OR l.group_name = $2) ORDER BY l.sequence LIMIT $3
