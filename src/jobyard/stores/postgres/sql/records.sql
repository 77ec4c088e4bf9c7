-- name: put_record(now, collection, key, data, expected version (NULL: any; 0: none), ms until expiry (NULL: never))
-- -> the new version; NULL when the expected version does not match
SELECT {schema}.jobyard_put_record(
  p_now => $1, p_collection => $2, p_key => $3, p_data => $4, p_expect => $5, p_expire => $6)

-- name: fetch_record(now, collection, key) -> version, data
SELECT r.version, r.data FROM {schema}.jobyard_record r
WHERE r.collection = $2 AND r.key = $3 AND r.expires_at > {schema}.jobyard_now($1)

-- name: list_records(now, collection, key after which to start, limit) -> key, version, data; by key
SELECT r.key, r.version, r.data FROM {schema}.jobyard_record r
WHERE r.collection = $2 AND r.key >= coalesce($3::text, '') AND r.key IS DISTINCT FROM $3
  AND r.expires_at > {schema}.jobyard_now($1)
ORDER BY r.key LIMIT $4

-- name: delete_record(now, collection, key, expected version (NULL: any)) -> a row if it was deleted
DELETE FROM {schema}.jobyard_record r
WHERE r.collection = $2 AND r.key = $3 AND r.expires_at > {schema}.jobyard_now($1) AND ($4::bigint IS NULL OR r.version = $4)
RETURNING 1

-- name: append_log(now, log, data) -> number of the entry
SELECT {schema}.jobyard_append_log(p_now => $1, p_name => $2, p_data => $3)

-- name: read_log(log, number after which to start, limit) -> number, at, data
SELECT l.number, l.at, l.data FROM {schema}.jobyard_log l WHERE l.name = $1 AND l.number > $2 ORDER BY l.number LIMIT $3

-- name: trim_log(log, last number to delete) -> number of entries that were deleted
WITH gone AS (DELETE FROM {schema}.jobyard_log l WHERE l.name = $1 AND l.number <= $2 RETURNING l.number)
SELECT count(*) FROM gone
