-- Hold the rows of queues, always in the order of their names, and let what waits outside join their lines.
-- in: queues, now, whole: also if that takes several rounds. out: those that exist, by name.
CREATE OR REPLACE FUNCTION {schema}.jobyard_hold(p_queues text[], p_now bigint, p_whole boolean) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  names text[] := '{}';
  v_name text;
BEGIN
  -- A client that is frozen, or that the network forgot, must not keep these rows; the setting ends with the transaction.
  PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
  FOR v_name IN
    SELECT k.name FROM {schema}.jobyard_queue k WHERE k.name = ANY (p_queues) ORDER BY k.name FOR NO KEY UPDATE
  LOOP
    names := names || v_name;
  END LOOP;
  FOREACH v_name IN ARRAY names LOOP
    WHILE {schema}.jobyard_fold(v_name, p_now) AND p_whole LOOP
    END LOOP;
  END LOOP;
  RETURN names;
END
$$;
