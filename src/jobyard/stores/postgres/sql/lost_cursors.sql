-- out: whether a cursor names a transaction that this server has not had yet: it came with a dump of another one.
SELECT EXISTS (SELECT FROM {schema}.jobyard_queue WHERE inbox_from > pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
