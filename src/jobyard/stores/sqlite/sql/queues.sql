-- Counters, queues and groups. A transaction loads each row once and writes it back once.

-- name: load_counter() -> sequence, turn, finish, revision, entry, the earliest run_at of a delayed job or NULL
SELECT sequence, turn, finish, revision, entry, (SELECT run_at FROM jobyard_delayed ORDER BY run_at LIMIT 1)
FROM jobyard_counter

-- name: save_counter(sequence, turn, finish, revision, entry)
UPDATE jobyard_counter SET sequence = ?, turn = ?, finish = ?, revision = ?, entry = ?

-- name: load_queue(name) -> all columns, in the order of `save_queue`
SELECT * FROM jobyard_queue WHERE name = ?

-- name: load_queues() -> all columns of all queues, in the order of `save_queue`, by name
SELECT * FROM jobyard_queue ORDER BY name

-- name: save_queue(the columns as listed)
-- Inserts or replaces. Positional because it runs in every transaction.
INSERT OR REPLACE INTO jobyard_queue (
  name, max_running, max_per_group, max_waiting, max_waiting_per_group, keep_completed, keep_failed,
  keep_completed_seconds, keep_failed_seconds, keep_at_most,
  paused, turn, waiting, delayed, running, completed, failed, cancelled, removed_by_cap, removed_by_cap_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: removes_soon(:seconds, :at_most) -> a row if a queue keeps ended jobs for less, or at most fewer
SELECT 1 FROM jobyard_queue
WHERE min(keep_completed_seconds, keep_failed_seconds) < :seconds OR keep_at_most < :at_most LIMIT 1

-- name: delete_queue(name)
DELETE FROM jobyard_queue WHERE name = ?

-- name: delete_groups(queue)
DELETE FROM jobyard_group WHERE queue = ?

-- name: delete_unique_keys(queue)
DELETE FROM jobyard_unique WHERE queue = ?

-- name: load_group(queue, name) -> own_limit, paused, turn, waiting, delayed, running
SELECT own_limit, paused, turn, waiting, delayed, running FROM jobyard_group WHERE queue = ? AND name = ?

-- name: load_groups(queue, JSON list of names) -> name, own_limit, paused, turn, waiting, delayed, running
SELECT name, own_limit, paused, turn, waiting, delayed, running FROM jobyard_group
WHERE queue = ? AND name IN (SELECT value FROM json_each(?))

-- name: list_groups(:queue, :after (a name), :limit) -> name, own_limit, paused, waiting, delayed, running; by name
SELECT name, own_limit, paused, waiting, delayed, running FROM jobyard_group
WHERE queue = :queue AND name > :after AND (waiting + delayed + running > 0 OR own_limit IS NOT NULL OR paused = 1)
ORDER BY name LIMIT :limit

-- name: list_line(:queue, :limit) -> groups with due jobs, front first, as `list_groups`
SELECT name, own_limit, paused, waiting, delayed, running FROM jobyard_group
WHERE queue = :queue AND waiting > 0 ORDER BY turn LIMIT :limit

-- name: count_line(queue) -> number of groups with due jobs
SELECT count(*) FROM jobyard_group WHERE queue = ? AND waiting > 0

-- name: insert_group(the columns as listed)
-- Positional because it runs for every new group of a batch.
INSERT INTO jobyard_group (queue, name, own_limit, paused, turn, waiting, delayed, running, open)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: update_group(own_limit, paused, turn, waiting, delayed, running, open, queue, name)
-- Positional because it runs for every group of a batch.
UPDATE jobyard_group SET own_limit = ?, paused = ?, turn = ?, waiting = ?, delayed = ?, running = ?, open = ?
WHERE queue = ? AND name = ?

-- name: delete_group(queue, name)
-- A group without jobs, limit or pause has no row.
DELETE FROM jobyard_group WHERE queue = ? AND name = ?

-- name: update_open_groups(:max_per_group, :queue)
-- Recomputes `open` of all groups after max_per_group changed.
UPDATE jobyard_group SET open = waiting > 0 AND paused = 0 AND
  (own_limit IS NOT NULL AND running < own_limit OR
   own_limit IS NULL AND (name = '' OR :max_per_group IS NULL OR running < :max_per_group))
WHERE queue = :queue

-- name: oldest_leases() -> queue, started_at of the job there that has run longest
SELECT queue, min(started_at) FROM jobyard_lease GROUP BY queue

-- name: next_group_head(queue, group)
-- -> the first position of the next group: group, urgency, since when its job is due
SELECT r.group_name, r.urgency, max(j.created_at, j.run_at)
FROM jobyard_ready r JOIN jobyard_job j ON j.sequence = r.sequence
WHERE r.queue = ? AND r.group_name > ?
ORDER BY r.group_name, r.urgency, r.sequence LIMIT 1

-- name: next_urgency_head(queue, group, urgency)
-- -> the group's first position of the next urgency: group, urgency, since when its job is due
SELECT r.group_name, r.urgency, max(j.created_at, j.run_at)
FROM jobyard_ready r JOIN jobyard_job j ON j.sequence = r.sequence
WHERE r.queue = ? AND r.group_name = ? AND r.urgency > ?
ORDER BY r.urgency, r.sequence LIMIT 1

-- name: count_jobs_ahead(:queue, :group, :urgency, :sequence, :limit)
-- -> number of due jobs of the group before that position, up to the limit
SELECT count(*) FROM (SELECT 1 FROM jobyard_ready
  WHERE queue = :queue AND group_name = :group AND (urgency, sequence) < (:urgency, :sequence) LIMIT :limit)

-- name: is_in_line(:queue, :group, :urgency, :sequence) -> a row if the job is there
SELECT 1 FROM jobyard_ready
WHERE queue = :queue AND group_name = :group AND urgency = :urgency AND sequence = :sequence

-- name: count_groups_ahead(:queue, :turn, :group, :limit)
-- -> number of open groups in line before that turn, up to the limit
SELECT count(*) FROM (SELECT 1 FROM jobyard_group
  WHERE queue = :queue AND open = 1 AND turn < :turn AND name <> :group LIMIT :limit)

-- name: running_in_group(queue, group, limit) -> ids of running jobs
SELECT j.id FROM jobyard_lease l CROSS JOIN jobyard_job j ON j.sequence = l.sequence
WHERE l.queue = ? AND l.group_name = ? ORDER BY l.sequence LIMIT ?

-- name: running_in_queue(queue, limit) -> ids of running jobs
SELECT j.id FROM jobyard_lease l CROSS JOIN jobyard_job j ON j.sequence = l.sequence
WHERE l.queue = ? ORDER BY l.sequence LIMIT ?
