-- name: diagnose_server()
-- -> version, whether it is read-only, fsync, synchronous_commit, full_page_writes, connections used and allowed
SELECT current_setting('server_version'), pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
  current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'),
  (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer

-- name: diagnose_snapshots(seconds)
-- -> what has held a snapshot, or an idle transaction, for longer; its age in seconds; how to end it
-- An old snapshot keeps VACUUM from removing any younger dead row, in every table.
SELECT format('%s (process %s, application "%s", user %s)', CASE WHEN a.state LIKE 'idle in transaction%' THEN
    'an idle transaction' ELSE 'a long transaction' END, a.pid, a.application_name, a.usename),
  extract(epoch FROM clock_timestamp() - a.xact_start)::bigint, 'end it: SELECT pg_terminate_backend(' || a.pid || ')'
FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - make_interval(secs => $1)
  AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL OR a.state LIKE 'idle in transaction%')
  AND a.backend_type = 'client backend'
UNION ALL
SELECT format('the prepared transaction "%s" of %s', p.gid, p.owner),
  extract(epoch FROM clock_timestamp() - p.prepared)::bigint,
  format('COMMIT PREPARED %L or ROLLBACK PREPARED %L', p.gid, p.gid)
FROM pg_prepared_xacts p WHERE p.prepared < clock_timestamp() - make_interval(secs => $1)
UNION ALL
SELECT format('the replication slot "%s"', s.slot_name), NULL,
  format('let its consumer catch up, or SELECT pg_drop_replication_slot(%L)', s.slot_name)
FROM pg_replication_slots s
WHERE NOT s.active AND (s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL)
ORDER BY 2 DESC NULLS LAST LIMIT 10

-- name: diagnose_tables(schema) -> per table: name, live rows, dead rows, size in bytes, time of the last VACUUM
SELECT t.relname, t.n_live_tup, t.n_dead_tup, pg_total_relation_size(t.relid),
  greatest(t.last_vacuum, t.last_autovacuum)
FROM pg_stat_user_tables t WHERE t.schemaname = $1 AND t.relname LIKE 'jobyard\_%' ORDER BY t.relname
