-- Documents with versions and expiry, and append-only logs.

-- name: load_record(collection, key) -> version, expires_at, data
SELECT version, expires_at, data FROM jobyard_record WHERE collection = ? AND key = ?

-- name: list_records(:collection, :after (a key), :now, :limit) -> key, version, data; by key
SELECT key, version, data FROM jobyard_record
WHERE collection = :collection AND key > :after AND expires_at > :now ORDER BY key LIMIT :limit

-- name: put_record(collection, key, version, expires_at, data)
INSERT OR REPLACE INTO jobyard_record VALUES (?, ?, ?, ?, ?)

-- name: delete_record(collection, key)
DELETE FROM jobyard_record WHERE collection = ? AND key = ?

-- name: delete_expired_records(now, limit)
DELETE FROM jobyard_record WHERE (collection, key) IN
  (SELECT collection, key FROM jobyard_record WHERE expires_at < 253402300799999 AND expires_at <= ? LIMIT ?)

-- name: append_log(:log, :at, :data) -> the number of the entry, above all that were trimmed
INSERT INTO jobyard_log (name, at, data, number)
  SELECT :log, :at, :data, 1 + max(coalesce((SELECT max(number) FROM jobyard_log WHERE name = :log), 0),
    coalesce((SELECT number FROM jobyard_trimmed WHERE name = :log), 0)) RETURNING number

-- name: read_log(log, after (a number), limit) -> number, at, data
SELECT number, at, data FROM jobyard_log WHERE name = ? AND number > ? ORDER BY number LIMIT ?

-- name: last_log_number(log, through (a number)) -> the last number up to there, or NULL
SELECT max(number) FROM jobyard_log WHERE name = ? AND number <= ?

-- name: trim_log(log, through (a number))
-- The row count tells how many entries were deleted.
DELETE FROM jobyard_log WHERE name = ? AND number <= ?

-- name: put_trimmed(log, the last number that was trimmed)
INSERT OR REPLACE INTO jobyard_trimmed VALUES (?, ?)
