-- Fold in what is new in queues in which nothing is claimed; at most as much as a claim does.
-- in: now (NULL: the server's clock), queues (empty: all).
CREATE OR REPLACE FUNCTION {schema}.jobyard_tidy(p_now bigint, p_queues text[]) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  names CONSTANT text[] := {schema}.jobyard_candidates(v_now, p_queues, false, false);
BEGIN
  IF cardinality(names) > 0 THEN
    PERFORM {schema}.jobyard_hold(names, v_now);
  END IF;
END
$$;
