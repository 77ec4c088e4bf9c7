-- in: seconds. out: who has kept an old snapshot, or an idle transaction, for longer: what, age in seconds.
-- While one is open, no dead row that is younger can be cleared away, in any table.
SELECT format('%s (process %s, application "%s", user %s)', CASE WHEN a.state LIKE 'idle in transaction%' THEN
    'a transaction that does nothing' ELSE 'a long transaction' END, a.pid, a.application_name, a.usename),
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
