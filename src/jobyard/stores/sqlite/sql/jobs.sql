-- Job rows, their tags, unique keys, finished jobs, and extras (errors, log lines, progress, steps, parents, and what a
-- workflow needs beside its history).

-- name: insert_job(the columns as listed)
-- Positional because it runs for every inserted job.
INSERT INTO jobyard_job (
  sequence, id, kind, queue, group_name, priority, payload, private_payload, max_attempts, used, deaths,
  timeout_seconds, backoff, run_at, created_at, unique_key, tags, waiting_for, signal, flags
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: last_sequence() -> the highest sequence in the table, or 0
SELECT coalesce(max(sequence), 0) FROM jobyard_job

-- name: load_job(id) -> the columns of `stores/_shared/job_rows.py`, flags
SELECT j.sequence, j.id, j.kind, j.queue, j.group_name, j.priority, j.payload, j.max_attempts, j.used, j.deaths,
  j.timeout_seconds, j.backoff, j.run_at, j.created_at, j.unique_key, j.tags, j.waiting_for,
  l.attempt, l.started_at, l.worker, l.external_id, l.cancel,
  d.state, d.attempt, d.started_at, d.finished_at, d.worker, d.result, d.reason, j.flags
FROM jobyard_job j LEFT JOIN jobyard_lease l ON l.sequence = j.sequence
  LEFT JOIN jobyard_done d ON d.sequence = j.sequence
WHERE j.id = ?

-- name: load_job_status(id) -> the columns of `change.JobStatus`
SELECT j.sequence, j.queue, j.group_name, j.priority, j.used, j.run_at, j.flags, j.unique_key, j.waiting_for,
  l.sequence IS NOT NULL, d.state
FROM jobyard_job j LEFT JOIN jobyard_lease l ON l.sequence = j.sequence
  LEFT JOIN jobyard_done d ON d.sequence = j.sequence
WHERE j.id = ?

-- name: load_signal_and_priority(sequence) -> signal, priority
SELECT signal, priority FROM jobyard_job WHERE sequence = ?

-- name: finish_job(used, deaths to add, erase the private payload (0/1), sequence)
UPDATE jobyard_job SET used = ?, deaths = deaths + ?,
  private_payload = CASE WHEN ? THEN NULL ELSE private_payload END, waiting_for = NULL WHERE sequence = ?

-- name: requeue_job(:used, :deaths (to add), :run_at, :waiting_for, :signal, :sequence)
-- After an attempt that did not end the job.
UPDATE jobyard_job SET used = :used, deaths = deaths + :deaths, run_at = :run_at, waiting_for = :waiting_for,
  signal = :signal WHERE sequence = :sequence

-- name: reset_job(run_at, sequence)
-- Before a retry by an operator: attempts and deaths start from zero.
UPDATE jobyard_job SET used = 0, deaths = 0, run_at = ?, waiting_for = NULL, signal = NULL WHERE sequence = ?

-- name: reschedule_job(run_at, sequence)
UPDATE jobyard_job SET run_at = ?, waiting_for = NULL WHERE sequence = ?

-- name: wake_job(run_at, signal data, sequence)
-- The signal for which the job was parked has come.
UPDATE jobyard_job SET run_at = ?, waiting_for = NULL, signal = ? WHERE sequence = ?

-- name: clear_waiting_for(sequence)
UPDATE jobyard_job SET waiting_for = NULL WHERE sequence = ?

-- name: prioritise_job(priority, sequence)
UPDATE jobyard_job SET priority = ? WHERE sequence = ?

-- name: delete_jobs(JSON list of sequences)
DELETE FROM jobyard_job WHERE sequence IN (SELECT value FROM json_each(?))

-- name: insert_tag(tag, sequence)
INSERT OR IGNORE INTO jobyard_tag VALUES (?, ?)

-- name: load_tags(sequence) -> JSON list of tags
SELECT tags FROM jobyard_job WHERE sequence = ?

-- name: delete_tag(tag, sequence)
DELETE FROM jobyard_tag WHERE tag = ? AND sequence = ?

-- name: load_unique_key(queue, key) -> job_id, until
SELECT job_id, until FROM jobyard_unique WHERE queue = ? AND key = ?

-- name: put_unique_key(queue, key, job_id, until)
INSERT OR REPLACE INTO jobyard_unique VALUES (?, ?, ?, ?)

-- name: release_unique_key(sequence of the job that ended)
-- Only a key that this job holds while active is released.
DELETE FROM jobyard_unique WHERE (queue, key, job_id) =
  (SELECT queue, unique_key, id FROM jobyard_job WHERE sequence = ?) AND until IS NULL

-- name: delete_expired_keys(now, limit)
DELETE FROM jobyard_unique WHERE (queue, key) IN
  (SELECT queue, key FROM jobyard_unique WHERE until < 253402300799999 AND until <= ? LIMIT ?)

-- name: insert_done(the columns as listed)
-- Positional because it runs for every finished job.
INSERT INTO jobyard_done (
  sequence, finish, queue, bucket, state, started_at, finished_at, worker, flags, attempt, result, reason
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: delete_done(sequence)
DELETE FROM jobyard_done WHERE sequence = ?

-- name: delete_all_done(JSON list of sequences)
DELETE FROM jobyard_done WHERE sequence IN (SELECT value FROM json_each(?))

-- name: list_oldest(:queue, :bucket, :limit) -> sequence, state, flags, finished_at; in the order of their ends
SELECT sequence, state, flags, finished_at FROM jobyard_done
WHERE queue = :queue AND bucket = :bucket ORDER BY finish LIMIT :limit

-- name: register_awaited(:id, :until, :seconds, :at_most)
-- Only in queues that keep ended jobs for less than these seconds, or at most fewer than this number.
INSERT INTO jobyard_awaited
SELECT j.sequence, :until FROM jobyard_job j JOIN jobyard_queue q ON q.name = j.queue
WHERE j.id = :id AND (min(q.keep_completed_seconds, q.keep_failed_seconds) < :seconds OR q.keep_at_most < :at_most)
ON CONFLICT (sequence) DO UPDATE SET until = max(until, excluded.until)

-- name: list_awaited(JSON list of sequences, now) -> those for which a caller waits
SELECT sequence FROM jobyard_awaited WHERE sequence IN (SELECT value FROM json_each(?)) AND until > ?

-- name: delete_expired_awaited(now)
DELETE FROM jobyard_awaited WHERE until <= ?

-- name: list_ended(JSON list of ids) -> id and whether the job exists (0/1), for jobs that have ended or do not exist
SELECT e.value, j.sequence IS NOT NULL FROM json_each(?) e LEFT JOIN jobyard_job j ON j.id = e.value
  LEFT JOIN jobyard_done d ON d.sequence = j.sequence
WHERE j.sequence IS NULL OR d.sequence IS NOT NULL

-- name: list_extras(sequence) -> what, number, data; in order
SELECT what, number, data FROM jobyard_extra WHERE sequence = ? ORDER BY what, number

-- name: list_extras_of(sequence, what) -> number, data; in order
SELECT number, data FROM jobyard_extra WHERE sequence = ? AND what = ? ORDER BY number

-- name: next_extra_number(sequence, what) -> the next free number
SELECT coalesce(max(number), 0) + 1 FROM jobyard_extra WHERE sequence = ? AND what = ?

-- name: put_extra(sequence, what, number, data)
INSERT OR REPLACE INTO jobyard_extra VALUES (?, ?, ?, ?)

-- name: trim_extras(sequence, what, highest number to delete)
DELETE FROM jobyard_extra WHERE sequence = ? AND what = ? AND number <= ?

-- name: delete_extras(JSON list of sequences)
DELETE FROM jobyard_extra WHERE sequence IN (SELECT value FROM json_each(?))
