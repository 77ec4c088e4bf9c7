-- Write a signal into the history of a job, and wake the job if it is parked on it: a workflow if one of its conditions
-- now holds, another job if it waits for that name.
-- in: now (NULL: the server's clock), job id, name, data, key of the entry, most signals of the name that are kept.
-- out: whether it woke, its final state if it has ended, whether it keeps too many; no row when it does not exist.
CREATE OR REPLACE FUNCTION {schema}.jobyard_signal(
  p_now bigint, p_id text, p_name text, p_data bytea, p_key text DEFAULT gen_random_uuid()::text,
  p_most bigint DEFAULT 10000
) RETURNS TABLE (woke boolean, final text, is_full boolean) LANGUAGE plpgsql
-- A caller's open transaction may have locked the job: the queue must not stay locked meanwhile.
SET lock_timeout = '200ms' SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  v_scope CONSTANT text := 'signal:' || p_name;
  held text[];
  j record;
  w record;
BEGIN
  held := {schema}.jobyard_hold(ARRAY(SELECT k.queue FROM {schema}.jobyard_job k WHERE k.id = p_id), v_now);
  -- A caller's own transaction that parks the job locks it, too, before it looks for signals: none is missed.
  PERFORM FROM {schema}.jobyard_job k WHERE k.id = p_id FOR NO KEY UPDATE;
  SELECT k.sequence, k.waiting_for, k.flags, k.wake INTO j
  FROM {schema}.jobyard_job k WHERE k.id = p_id AND k.queue = ANY (held);
  IF NOT FOUND THEN
    RETURN;
  END IF;
  SELECT d.state INTO final FROM {schema}.jobyard_done d WHERE d.sequence = j.sequence;
  woke := false;
  is_full := EXISTS (SELECT FROM {schema}.jobyard_scope x
                     WHERE x.sequence = j.sequence AND x.scope = v_scope AND x.entries - x.taken >= p_most);
  IF is_full THEN
    is_full := NOT EXISTS (SELECT FROM {schema}.jobyard_history h
                           WHERE h.sequence = j.sequence AND h.scope = v_scope AND h.key = p_key);
  END IF;
  IF final IS NOT NULL OR is_full THEN
    RETURN NEXT;
    RETURN;
  END IF;
  UPDATE {schema}.jobyard_job k SET flags = k.flags | 64 WHERE k.sequence = j.sequence AND k.flags & 64 = 0;
  SELECT * INTO w FROM {schema}.jobyard_write(
    v_now, ARRAY[j.sequence], ARRAY[v_scope], ARRAY[p_key], ARRAY[p_data]);
  IF cardinality(w.skipped) > 0 THEN
    -- It was received before.
    RETURN NEXT;
    RETURN;
  END IF;
  IF j.flags & 32 <> 0 THEN
    woke := j.waiting_for IS NOT NULL AND j.wake IS NOT NULL AND {schema}.jobyard_may_wake(j.sequence, j.wake);
  ELSE
    woke := coalesce(j.waiting_for = p_name, false);
  END IF;
  IF woke THEN
    PERFORM {schema}.jobyard_leave(j.sequence, v_now);
    IF j.flags & 32 = 0 THEN
      UPDATE {schema}.jobyard_job k SET signal = {schema}.jobyard_take_signal(j.sequence, p_name)
      WHERE k.sequence = j.sequence;
    END IF;
    PERFORM {schema}.jobyard_join(j.sequence, v_now);
    PERFORM {schema}.jobyard_fold_in_order(held[1], v_now, NULL);
    PERFORM nextval('{schema}.jobyard_revision');
  END IF;
  RETURN NEXT;
END
$$;
