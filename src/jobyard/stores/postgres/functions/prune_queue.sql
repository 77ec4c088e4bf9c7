-- Apply the retention of one queue.
-- in: now (NULL: the server's clock), queue, limit. out: number of removed jobs.
CREATE OR REPLACE FUNCTION {schema}.jobyard_prune_queue(p_now bigint, p_queue text, p_limit integer) RETURNS integer
LANGUAGE plpgsql SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
BEGIN
  PERFORM {schema}.jobyard_hold(ARRAY[p_queue], v_now);
  RETURN {schema}.jobyard_prune(p_queue, v_now, p_limit, 0, '{}');
END
$$;
