-- Apply an action to each job, in the given order.
-- in: now (NULL: the server's clock), action, ids, reason, priority.
-- out: per id that exists: whether its state allowed it.
CREATE OR REPLACE FUNCTION {schema}.jobyard_change(
  p_now bigint, p_action text, p_ids text[], p_reason text, p_priority integer
) RETURNS TABLE (id text, fits boolean) LANGUAGE plpgsql
-- A caller's open transaction may have locked a job or a key: the queue must not stay locked meanwhile.
SET lock_timeout = '200ms' SET jit = off SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  held text[];
  v_name text;
  v_id text;
  v_sequence bigint;
  v_fits boolean;
  any_fits boolean := false;
BEGIN
  held := {schema}.jobyard_hold(
    ARRAY(SELECT DISTINCT j.queue FROM {schema}.jobyard_job j WHERE j.id = ANY (p_ids)), v_now);
  FOREACH v_id IN ARRAY p_ids LOOP
    SELECT j.sequence INTO v_sequence FROM {schema}.jobyard_job j WHERE j.id = v_id AND j.queue = ANY (held);
    CONTINUE WHEN NOT FOUND;
    v_fits := {schema}.jobyard_change_one(v_now, p_action, v_sequence, p_reason, p_priority);
    any_fits := any_fits OR v_fits;
    RETURN QUERY SELECT v_id, v_fits;
  END LOOP;
  FOREACH v_name IN ARRAY held LOOP
    PERFORM {schema}.jobyard_fold_in_order(v_name, v_now, NULL);
  END LOOP;
  IF any_fits THEN
    PERFORM nextval('{schema}.jobyard_revision');
  END IF;
END
$$;
