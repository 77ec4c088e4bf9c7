-- Lock the rows of queues, always in the order of their names, and fold in what is new in them.
-- in: queues, now. out: the queues that exist, by name.
-- The work is bounded, however many jobs are due, because others wait for these rows: what is left is folded in by the
-- next calls. Several queues share the bound.
CREATE OR REPLACE FUNCTION {schema}.jobyard_hold(p_queues text[], p_now bigint) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  at_once CONSTANT integer := 1000;
  at_least CONSTANT integer := 20;
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
    PERFORM {schema}.jobyard_fold(v_name, p_now, greatest(at_least, at_once / cardinality(names)));
  END LOOP;
  RETURN names;
END
$$;
