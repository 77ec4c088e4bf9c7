-- out: whether these tables have been used on this server before, or cannot be written now anyway.
SELECT current_setting('transaction_read_only') = 'on' OR EXISTS (
  SELECT FROM {schema}.jobyard_chore c, pg_control_system() s WHERE c.name = 'cluster ' || s.system_identifier)
