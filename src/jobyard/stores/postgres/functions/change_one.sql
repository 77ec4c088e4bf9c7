-- Apply an action to one job; the caller has locked the queue's row and folds afterwards.
-- in: now, action (also 'cancel_unless_requested': leaves a job that was asked to stop), sequence, reason, priority. out: whether the job's state allowed it.
CREATE OR REPLACE FUNCTION {schema}.jobyard_change_one(
  p_now bigint, p_action text, p_sequence bigint, p_reason text, p_priority integer
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  j record;
  v_final text;
  v_running boolean;
  v_begun boolean;
  v_ord bigint;
  v_action CONSTANT text := CASE p_action WHEN 'cancel_unless_requested' THEN 'cancel' ELSE p_action END;
BEGIN
  SELECT k.id, k.queue, k.group_name, k.priority, k.run_at, k.used, k.flags, k.unique_key, k.waiting_for, k.cancel
  INTO j
  FROM {schema}.jobyard_job k WHERE k.sequence = p_sequence;
  IF v_action <> p_action AND (j.cancel IS NOT NULL OR EXISTS (
    SELECT FROM {schema}.jobyard_lease l WHERE l.sequence = p_sequence AND l.cancel IS NOT NULL)) THEN
    RETURN false;
  END IF;
  IF v_action = 'cancel' THEN
    -- NOWAIT: a caller's own transaction may be settling it; the retry happens without the lock on the queue.
    PERFORM FROM {schema}.jobyard_lease l WHERE l.sequence = p_sequence FOR NO KEY UPDATE NOWAIT;
    IF FOUND THEN
      UPDATE {schema}.jobyard_lease l SET cancel = p_reason WHERE l.sequence = p_sequence;
      RETURN true;
    END IF;
  END IF;
  v_running := EXISTS (SELECT FROM {schema}.jobyard_lease l WHERE l.sequence = p_sequence);
  IF v_running THEN
    RETURN false;
  END IF;
  SELECT d.state INTO v_final FROM {schema}.jobyard_done d WHERE d.sequence = p_sequence;
  v_begun := v_final IS NULL AND j.flags & 32 <> 0 AND {schema}.jobyard_has_begun(p_sequence);

  CASE v_action
  WHEN 'cancel' THEN
    IF v_begun AND j.cancel IS NULL THEN
      -- It is made due, to end itself.
      IF NOT EXISTS (SELECT FROM {schema}.jobyard_ready r WHERE r.queue = j.queue AND r.group_name = j.group_name
                     AND r.ord = (-j.priority::bigint << 42) + p_sequence) THEN
        IF {schema}.jobyard_leave(p_sequence, p_now) IS NULL THEN
          RETURN false;
        END IF;
        PERFORM {schema}.jobyard_join(p_sequence, p_now);
      END IF;
      UPDATE {schema}.jobyard_job k SET cancel = p_reason WHERE k.sequence = p_sequence;
      RETURN true;
    END IF;
    IF v_final IS NOT NULL OR {schema}.jobyard_leave(p_sequence, p_now) IS NULL THEN
      RETURN false;
    END IF;
    UPDATE {schema}.jobyard_job k SET waiting_for = NULL, wake = NULL, signal = NULL, cancel = NULL
    WHERE k.sequence = p_sequence;
    INSERT INTO {schema}.jobyard_done (sequence, finish, finished_at, attempt, bucket, queue, state, reason)
    VALUES (p_sequence, 0, p_now, j.used, 1, j.queue, 'CANCELLED', p_reason);
    IF j.flags & 1 <> 0 THEN
      PERFORM {schema}.jobyard_free_keys(ARRAY[p_sequence]);
    END IF;
    IF j.flags & 48 <> 0 THEN
      PERFORM {schema}.jobyard_record_end(p_sequence, 'CANCELLED', NULL, p_reason);
    END IF;
    INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, cancelled, ended)
    VALUES (j.queue, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), j.group_name, p_now, 1,
            p_sequence);
  WHEN 'retry' THEN
    IF v_final IS NULL OR v_final = 'COMPLETED' THEN
      RETURN false;
    END IF;
    IF j.flags & 1 <> 0 AND {schema}.jobyard_take_key(p_now, j.queue, j.unique_key, j.id, NULL) IS NOT NULL THEN
      RETURN false;
    END IF;
    DELETE FROM {schema}.jobyard_done d WHERE d.sequence = p_sequence;
    INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, failed, cancelled)
    VALUES (j.queue, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), j.group_name, p_now,
            -(v_final <> 'CANCELLED')::integer, -(v_final = 'CANCELLED')::integer);
    UPDATE {schema}.jobyard_job k SET used = 0, deaths = 0, signal = NULL WHERE k.sequence = p_sequence;
    PERFORM {schema}.jobyard_join(p_sequence, p_now);
  WHEN 'delete' THEN
    IF v_final IS NULL THEN
      IF v_begun OR {schema}.jobyard_leave(p_sequence, p_now) IS NULL THEN
        RETURN false;
      END IF;
      IF j.flags & 16 <> 0 THEN
        PERFORM {schema}.jobyard_record_end(p_sequence, NULL, NULL, NULL);
      END IF;
      IF j.flags & 1 <> 0 THEN
        PERFORM {schema}.jobyard_free_keys(ARRAY[p_sequence]);
      END IF;
    ELSIF v_final <> 'COMPLETED' AND j.flags & 32 <> 0 AND EXISTS (
      SELECT FROM {schema}.jobyard_ended e WHERE e.job_id = j.id) THEN
      -- Its child jobs have yet to be told.
      RETURN false;
    ELSE
      DELETE FROM {schema}.jobyard_done d WHERE d.sequence = p_sequence;
      INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, completed, failed, cancelled)
      VALUES (j.queue, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), j.group_name, p_now,
              -(v_final = 'COMPLETED')::integer, -(v_final IN ('FAILED', 'TIMEOUT'))::integer,
              -(v_final = 'CANCELLED')::integer);
    END IF;
    PERFORM {schema}.jobyard_drop(ARRAY[p_sequence]);
  WHEN 'prioritise' THEN
    IF v_final IS NOT NULL THEN
      RETURN false;
    END IF;
    v_ord := (-p_priority::bigint << 42) + p_sequence;
    UPDATE {schema}.jobyard_ready r SET ord = v_ord WHERE r.queue = j.queue AND r.group_name = j.group_name
      AND r.ord = (-j.priority::bigint << 42) + p_sequence;
    IF FOUND THEN
      INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, ord)
      VALUES (j.queue, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), j.group_name, p_now, v_ord);
    ELSE
      UPDATE {schema}.jobyard_delayed d SET ord = v_ord
      WHERE d.queue = j.queue AND d.run_at = j.run_at AND d.sequence = p_sequence;
      IF NOT FOUND THEN
        RETURN false;
      END IF;
    END IF;
    UPDATE {schema}.jobyard_job k SET priority = p_priority WHERE k.sequence = p_sequence;
  WHEN 'run_now' THEN
    IF v_final IS NOT NULL OR j.run_at <= p_now OR j.waiting_for IS NOT NULL
      OR {schema}.jobyard_leave(p_sequence, p_now) IS NULL THEN
      RETURN false;
    END IF;
    PERFORM {schema}.jobyard_join(p_sequence, p_now);
  END CASE;
  RETURN true;
END
$$;
