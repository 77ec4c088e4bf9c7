-- Due jobs in line (jobyard_ready), and jobs that become due later (jobyard_delayed).

-- name: insert_ready(queue, group, urgency, sequence)
INSERT INTO jobyard_ready VALUES (?, ?, ?, ?)

-- name: delete_ready(queue, group, urgency, sequence)
-- The row count tells whether the job was due.
DELETE FROM jobyard_ready WHERE queue = ? AND group_name = ? AND urgency = ? AND sequence = ?

-- name: delete_ready_through(queue, group, urgency, sequence)
-- Removes the head of the group up to and including that position.
DELETE FROM jobyard_ready WHERE queue = ? AND group_name = ? AND (urgency, sequence) <= (?, ?)

-- name: insert_delayed(run_at, sequence)
INSERT INTO jobyard_delayed VALUES (?, ?)

-- name: delete_delayed(run_at, sequence)
DELETE FROM jobyard_delayed WHERE run_at = ? AND sequence = ?

-- name: next_delayed() -> the earliest run_at of a delayed job, or no row
SELECT run_at FROM jobyard_delayed ORDER BY run_at LIMIT 1

-- name: list_due(now, limit) -> delayed jobs that are due, in the order in which they join the line
SELECT d.run_at, d.sequence, j.queue, j.group_name, j.priority, j.waiting_for, j.flags
FROM jobyard_delayed d CROSS JOIN jobyard_job j ON j.sequence = d.sequence
WHERE d.run_at <= ? ORDER BY d.run_at, d.sequence LIMIT ?

-- name: queues_with_work() -> names of the queues that have a due job
SELECT name FROM jobyard_queue WHERE waiting > 0

-- name: list_open_groups(queue, limit) -> groups with a due job and room, in the order of their turns
SELECT name, own_limit, paused, turn, waiting, delayed, running FROM jobyard_group
WHERE queue = ? AND open = 1 ORDER BY turn LIMIT ?

-- name: group_heads(JSON list of groups, queue)
-- -> index in the list, then the group's first job with the columns of a claim
SELECT n.key, -j.priority, j.sequence, j.id, j.kind, j.max_attempts, j.used, j.deaths, j.payload, j.private_payload,
  j.timeout_seconds, j.backoff, j.signal, j.flags
FROM json_each(?) n CROSS JOIN jobyard_job j ON j.sequence = (
  SELECT r.sequence FROM jobyard_ready r WHERE r.queue = ? AND r.group_name = n.value
  ORDER BY r.urgency, r.sequence LIMIT 1)

-- name: next_jobs_of_group(queue, group, limit) -> the group's next jobs in order, with the columns of a claim
SELECT r.urgency, j.sequence, j.id, j.kind, j.max_attempts, j.used, j.deaths, j.payload, j.private_payload,
  j.timeout_seconds, j.backoff, j.signal, j.flags
FROM jobyard_ready r CROSS JOIN jobyard_job j ON j.sequence = r.sequence
WHERE r.queue = ? AND r.group_name = ? ORDER BY r.urgency, r.sequence LIMIT ?

-- name: has_work(JSON list of queues) -> a row if a group there is eligible
SELECT 1 FROM json_each(?) n CROSS JOIN jobyard_queue q ON q.name = n.value
WHERE q.waiting > 0 AND q.paused = 0 AND (q.max_running IS NULL OR q.running < q.max_running)
  AND EXISTS (SELECT 1 FROM jobyard_group g INDEXED BY jobyard_line WHERE g.queue = q.name AND g.open = 1) LIMIT 1

-- name: has_any_work() -> a row if a group of any queue is eligible
SELECT 1 FROM jobyard_queue q
WHERE q.waiting > 0 AND q.paused = 0 AND (q.max_running IS NULL OR q.running < q.max_running)
  AND EXISTS (SELECT 1 FROM jobyard_group g INDEXED BY jobyard_line WHERE g.queue = q.name AND g.open = 1) LIMIT 1
