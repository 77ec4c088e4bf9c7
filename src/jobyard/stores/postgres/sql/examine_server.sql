-- out: the server's version, whether it takes writes, the settings that make a commit last, connections used and allowed.
SELECT current_setting('server_version'), pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
  current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'),
  (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
