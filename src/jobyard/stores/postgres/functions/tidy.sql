-- Fold in the inboxes, so that counts can be read.
-- in: now (NULL: the server's clock), queues (empty: all).
CREATE OR REPLACE FUNCTION {schema}.jobyard_tidy(p_now bigint, p_queues text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  names CONSTANT text[] := {schema}.jobyard_candidates(v_now, p_queues, false, false);
BEGIN
  IF cardinality(names) > 0 THEN
    PERFORM {schema}.jobyard_hold(names, v_now, true);
  END IF;
END
$$;
