-- Cursors that came with a dump of another server begin anew; what they skipped has been folded in, and is gone.
UPDATE {schema}.jobyard_queue SET inbox_from = 0
WHERE inbox_from > pg_snapshot_xmin(pg_current_snapshot())::text::bigint
