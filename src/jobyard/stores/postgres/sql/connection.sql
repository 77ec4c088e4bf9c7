-- name: has_foreign_cursors()
-- -> whether a cursor names a transaction that this server has not reached: it came with a dump of another server
SELECT EXISTS (SELECT FROM {schema}.jobyard_queue WHERE inbox_from > pg_snapshot_xmin(pg_current_snapshot())::text::bigint)

-- name: reset_foreign_cursors()
-- The inbox rows that such a cursor skips were folded in before the dump, so they no longer exist.
UPDATE {schema}.jobyard_queue SET inbox_from = 0
WHERE inbox_from > pg_snapshot_xmin(pg_current_snapshot())::text::bigint

-- name: take_chore(name, ms since its last run by any process) -> a row when this process is to run it now
INSERT INTO {schema}.jobyard_chore AS c (name, at) VALUES ($1, {schema}.jobyard_now(NULL))
ON CONFLICT (name) DO UPDATE SET at = excluded.at WHERE c.at <= excluded.at - $2::bigint OR c.at > excluded.at
RETURNING 1
