-- Armed schedules, decided ticks, worker heartbeats.

-- name: arm(:schedule, :revision, :since (or NULL), :now)
-- The row count is 0 if a later revision is armed.
INSERT INTO jobyard_armed VALUES (:schedule, :revision, coalesce(:since, :now))
ON CONFLICT (schedule) DO UPDATE
SET revision = excluded.revision, decided_until = max(decided_until, coalesce(:since, decided_until))
WHERE revision <= excluded.revision

-- name: disarm(:schedule, :revision (the latest that may be removed, or NULL))
-- The row count tells whether it was removed.
DELETE FROM jobyard_armed WHERE schedule = :schedule AND revision <= coalesce(:revision, revision)

-- name: load_armed(JSON list of schedules) -> schedule, revision, decided_until
SELECT schedule, revision, decided_until FROM jobyard_armed WHERE schedule IN (SELECT value FROM json_each(?))

-- name: list_armed(after (a schedule), limit) -> schedule, revision, decided_until
SELECT schedule, revision, decided_until FROM jobyard_armed WHERE schedule > ? ORDER BY schedule LIMIT ?

-- name: save_decided(decided_until, schedule)
UPDATE jobyard_armed SET decided_until = ? WHERE schedule = ?

-- name: insert_tick(the columns as listed)
INSERT INTO jobyard_tick (schedule, at, verdict, job_id, first, count, decided_at) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: list_ticks(schedule, before (an instant), limit) -> at, verdict, job_id, first, count, decided_at; newest first
SELECT at, verdict, job_id, first, count, decided_at FROM jobyard_tick
WHERE schedule = ? AND at < ? ORDER BY at DESC LIMIT ?

-- name: trim_ticks(:schedule, :keep)
-- Deletes all but the newest.
DELETE FROM jobyard_tick WHERE schedule = :schedule
  AND at < (SELECT at FROM jobyard_tick WHERE schedule = :schedule ORDER BY at DESC LIMIT 1 OFFSET :keep - 1)

-- name: delete_ticks(schedule)
DELETE FROM jobyard_tick WHERE schedule = ?

-- name: put_worker(id, expires_at, data)
INSERT OR REPLACE INTO jobyard_worker VALUES (?, ?, ?)

-- name: list_workers() -> expires_at, data of all workers, by id
SELECT expires_at, data FROM jobyard_worker ORDER BY id

-- name: delete_worker(id)
DELETE FROM jobyard_worker WHERE id = ?

-- name: delete_expired_workers(now)
DELETE FROM jobyard_worker WHERE expires_at <= ?
