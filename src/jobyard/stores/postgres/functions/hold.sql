-- Lock the rows of queues, always in the order of their names, and fold in their inboxes.
-- in: queues, now, whole: repeat until nothing is left to fold in. out: the queues that exist, by name.
CREATE OR REPLACE FUNCTION {schema}.jobyard_hold(p_queues text[], p_now bigint, p_whole boolean) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  names text[] := '{}';
  v_name text;
BEGIN
  -- A client that freezes or loses its network must not keep the rows locked; the setting ends with the transaction.
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
