-- in: schema. out: our tables with their live and dead rows, size in bytes, and when they were last cleared.
SELECT t.relname, t.n_live_tup, t.n_dead_tup, pg_total_relation_size(t.relid),
  greatest(t.last_vacuum, t.last_autovacuum)
FROM pg_stat_user_tables t WHERE t.schemaname = $1 AND t.relname LIKE 'jobyard\_%' ORDER BY t.relname
