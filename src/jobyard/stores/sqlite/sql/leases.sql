-- Leases of running jobs. The table holds running jobs only, so a scan of it is short.

-- name: insert_lease(the columns as listed)
-- Positional because it runs for every claimed job.
INSERT INTO jobyard_lease (
  sequence, token, expires_at, worker, attempt, started_at, queue, group_name, flags, external_id, cancel
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)

-- name: load_leases(JSON list of sequences) -> the leases that exist
SELECT sequence, token, queue, group_name, attempt, worker, started_at, flags, cancel FROM jobyard_lease
WHERE sequence IN (SELECT value FROM json_each(?))

-- name: delete_leases(JSON list of sequences)
DELETE FROM jobyard_lease WHERE sequence IN (SELECT value FROM json_each(?))

-- name: check_lease(sequence, token) -> attempt, if the token holds the lease
SELECT attempt FROM jobyard_lease WHERE sequence = ? AND token = ?

-- name: extend_lease(expires_at, sequence, token)
-- A handed-off lease (external_id) keeps its expiry.
UPDATE jobyard_lease SET expires_at = CASE WHEN external_id IS NULL THEN ? ELSE expires_at END
WHERE sequence = ? AND token = ?

-- name: extend_worker(expires_at, worker, now, window in ms)
-- Its leases that were not handed off and began within the window; before and after, because the clock may be set back.
UPDATE jobyard_lease SET expires_at = ? WHERE worker = ? AND abs(started_at - ?) < ? AND external_id IS NULL

-- name: hand_off_lease(external_id, expires_at, sequence, token)
UPDATE jobyard_lease SET external_id = ?, expires_at = ? WHERE sequence = ? AND token = ?

-- name: list_expired_leases(now, limit) -> expired leases, with the job's id and deaths
SELECT l.sequence, l.token, j.id, l.queue, l.group_name, l.worker, l.attempt, j.deaths, l.cancel,
  l.started_at, l.flags
FROM jobyard_lease l CROSS JOIN jobyard_job j ON j.sequence = l.sequence
WHERE l.expires_at <= ? ORDER BY l.expires_at, l.sequence LIMIT ?

-- name: has_lease_to_end(judged at, longest) -> a row if a lease has expired, or ends later than the longest
SELECT 1 FROM jobyard_lease WHERE expires_at <= ? OR (expires_at > ? AND external_id IS NULL) LIMIT 1

-- name: shorten_leases(longest, longest)
-- A handed-off lease keeps its expiry.
UPDATE jobyard_lease SET expires_at = ? WHERE expires_at > ? AND external_id IS NULL

-- name: load_cancel_request(sequence) -> reason, or NULL; no row unless it is running
SELECT cancel FROM jobyard_lease WHERE sequence = ?

-- name: request_cancel(reason, sequence)
UPDATE jobyard_lease SET cancel = ? WHERE sequence = ?

-- name: list_cancel_requests(worker) -> id, sequence, token, reason of its jobs that have a cancel request
SELECT j.id, l.sequence, l.token, l.cancel FROM jobyard_lease l CROSS JOIN jobyard_job j ON j.sequence = l.sequence
WHERE l.worker = ? AND l.cancel IS NOT NULL

-- name: count_cancel_requests() -> number of running jobs that have a cancel request
SELECT count(*) FROM jobyard_lease WHERE cancel IS NOT NULL
