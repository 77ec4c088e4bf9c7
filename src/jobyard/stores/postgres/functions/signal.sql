-- Wake a job that is parked on the signal, or store the signal for its next park on that name.
-- in: now (NULL: the server's clock), id, name, data.
-- out: whether it woke, its final state if it has ended; no row when it does not exist.
CREATE OR REPLACE FUNCTION {schema}.jobyard_signal(p_now bigint, p_id text, p_name text, p_data bytea)
RETURNS TABLE (woke boolean, final text) LANGUAGE plpgsql
-- A caller's open transaction may have locked the job: the queue must not stay locked meanwhile.
SET lock_timeout = '200ms'
AS $$
DECLARE
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  held text[];
  j record;
  v_final text;
BEGIN
  held := {schema}.jobyard_hold(ARRAY(SELECT k.queue FROM {schema}.jobyard_job k WHERE k.id = p_id), v_now);
  SELECT k.sequence, k.waiting_for INTO j FROM {schema}.jobyard_job k WHERE k.id = p_id AND k.queue = ANY (held);
  IF NOT FOUND THEN
    RETURN;
  END IF;
  SELECT d.state INTO v_final FROM {schema}.jobyard_done d WHERE d.sequence = j.sequence;
  IF v_final IS NOT NULL THEN
    RETURN QUERY SELECT false, v_final;
    RETURN;
  END IF;
  IF j.waiting_for = p_name THEN
    PERFORM {schema}.jobyard_leave(j.sequence, v_now);
    UPDATE {schema}.jobyard_job k SET signal = p_data WHERE k.sequence = j.sequence;
    PERFORM {schema}.jobyard_join(j.sequence, v_now);
    PERFORM {schema}.jobyard_fold_in_order(held[1], v_now, NULL);
    PERFORM nextval('{schema}.jobyard_revision');
    RETURN QUERY SELECT true, NULL::text;
    RETURN;
  END IF;
  UPDATE {schema}.jobyard_job k SET flags = k.flags | 8 WHERE k.sequence = j.sequence AND k.flags & 8 = 0;
  UPDATE {schema}.jobyard_extra e SET data = p_data, at = v_now
  WHERE e.sequence = j.sequence AND e.what = 'signal' AND e.name = p_name;
  IF NOT FOUND THEN
    INSERT INTO {schema}.jobyard_extra (sequence, what, number, name, at, data)
    SELECT j.sequence, 'signal', coalesce(max(e.number), 0) + 1, p_name, v_now, p_data
    FROM {schema}.jobyard_extra e WHERE e.sequence = j.sequence AND e.what = 'signal';
  END IF;
  -- A caller's own transaction may have ended it meanwhile.
  RETURN QUERY SELECT false, (SELECT d.state FROM {schema}.jobyard_done d WHERE d.sequence = j.sequence);
END
$$;
