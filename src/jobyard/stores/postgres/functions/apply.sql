-- Apply one transition to a job whose lease holds; the counts follow through the inbox.
-- in: now, sequence, token, the fields of the transition; expired_before: only if the lease had expired by then
--     (NULL: always). out: whether the token held.
-- Does not lock the queue's row, so it can run inside a caller's own transaction.
CREATE OR REPLACE FUNCTION {schema}.jobyard_apply(
  p_now bigint, p_sequence bigint, p_token text, p_to text, p_counted boolean, p_died boolean, p_delay bigint,
  p_signal text, p_park bigint, p_external text, p_result bytea, p_reason text, p_error bytea, p_expired_before bigint,
  p_wake text DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  forever CONSTANT bigint := 253402300799999;
  l record;
  j record;
  v_used integer;
  v_to text := p_to;
  v_reason text := p_reason;
  v_signal bytea;
  v_waiting_for text;
  v_cancel text;
  v_run_at bigint;
  v_delay bigint := p_delay;
  v_parks boolean := p_signal IS NOT NULL;
  v_flags integer := 0;
  v_ord bigint;
BEGIN
  IF p_to = 'RUNNING' THEN
    UPDATE {schema}.jobyard_lease k SET external_id = p_external, expires_at = forever
    WHERE k.sequence = p_sequence AND k.token = p_token;
    RETURN FOUND;
  END IF;
  DELETE FROM {schema}.jobyard_lease k
  WHERE k.sequence = p_sequence AND k.token = p_token AND (p_expired_before IS NULL OR k.expires_at <= p_expired_before)
  RETURNING k.* INTO l;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF v_parks THEN
    -- Until the commit: a signal or a delivery that this does not see finds the job parked.
    PERFORM FROM {schema}.jobyard_job k WHERE k.sequence = p_sequence FOR NO KEY UPDATE;
  END IF;
  SELECT k.priority, k.signal, k.flags, k.cancel INTO j FROM {schema}.jobyard_job k WHERE k.sequence = p_sequence;
  v_cancel := j.cancel;
  IF v_to = 'PENDING' AND l.cancel IS NOT NULL THEN
    v_parks := false;
    v_delay := 0;
    IF v_cancel IS NULL AND j.flags & 32 <> 0 AND {schema}.jobyard_has_begun(p_sequence) THEN
      -- A workflow that has begun ends itself, in its next attempt.
      v_cancel := l.cancel;
    ELSE
      -- Another job whose cancel was requested does not wait again.
      v_to := 'CANCELLED';
      v_reason := l.cancel;
    END IF;
  END IF;
  v_used := l.attempt - CASE WHEN p_counted THEN 0 ELSE 1 END;
  IF p_error IS NOT NULL THEN
    INSERT INTO {schema}.jobyard_extra (sequence, what, number, at, data)
    SELECT p_sequence, 'error', coalesce(max(e.number), 0) + 1, p_now, p_error
    FROM {schema}.jobyard_extra e WHERE e.sequence = p_sequence AND e.what = 'error';
    v_flags := 8;
  END IF;

  IF v_to = 'PENDING' THEN
    v_run_at := least(forever, p_now + v_delay);
    v_signal := j.signal;
    IF v_parks THEN
      v_signal := CASE WHEN p_wake IS NULL AND j.flags & 64 <> 0 THEN
        {schema}.jobyard_take_signal(p_sequence, p_signal) END;
      IF v_signal IS NOT NULL OR (p_wake IS NOT NULL AND {schema}.jobyard_may_wake(p_sequence, p_wake)) THEN
        v_run_at := p_now;
      ELSE
        v_run_at := CASE WHEN p_park IS NULL THEN forever ELSE least(forever, p_now + p_park) END;
        v_waiting_for := CASE WHEN v_run_at > p_now THEN p_signal END;
      END IF;
    END IF;
    UPDATE {schema}.jobyard_job k SET used = v_used, deaths = k.deaths + p_died::integer, run_at = v_run_at,
      waiting_for = v_waiting_for, signal = v_signal, flags = k.flags | v_flags,
      wake = CASE WHEN v_waiting_for IS NOT NULL THEN p_wake END, cancel = v_cancel
    WHERE k.sequence = p_sequence;
    v_ord := (-j.priority::bigint << 42) + p_sequence;
    IF v_run_at <= p_now THEN
      INSERT INTO {schema}.jobyard_ready VALUES (l.queue, l.group_name, v_ord, v_used, l.flags);
      INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, waiting, running, ord)
      VALUES (l.queue, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), l.group_name, p_now, 1, -1,
              v_ord);
    ELSE
      INSERT INTO {schema}.jobyard_delayed
      VALUES (l.queue, v_run_at, p_sequence, l.group_name, v_ord, v_used, l.flags, v_waiting_for IS NOT NULL);
      INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, delayed, running, run_at)
      VALUES (l.queue, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), l.group_name, p_now, 1, -1,
              v_run_at);
    END IF;
    RETURN true;
  END IF;

  UPDATE {schema}.jobyard_job k SET used = v_used, deaths = k.deaths + p_died::integer, waiting_for = NULL, signal = NULL,
    cancel = NULL, private_payload = CASE WHEN v_to <> 'COMPLETED' THEN k.private_payload END, flags = k.flags | v_flags
  WHERE k.sequence = p_sequence;
  INSERT INTO {schema}.jobyard_done
    (sequence, finish, started_at, finished_at, attempt, bucket, queue, state, worker, result, reason)
  VALUES (p_sequence, 0, l.started_at, p_now, v_used, CASE WHEN v_to = 'COMPLETED' THEN 0 ELSE 1 END,
          l.queue, v_to, l.worker, p_result, v_reason);
  IF l.flags & 1 <> 0 THEN
    PERFORM {schema}.jobyard_free_keys(ARRAY[p_sequence]);
  END IF;
  IF j.flags & 48 <> 0 THEN
    PERFORM {schema}.jobyard_record_end(p_sequence, v_to, p_result, v_reason);
  END IF;
  INSERT INTO {schema}.jobyard_inbox
    (queue, xid, number, group_name, at, running, completed, failed, cancelled, ended)
  VALUES (l.queue, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), l.group_name, p_now, -1,
          (v_to = 'COMPLETED')::integer, (v_to IN ('FAILED', 'TIMEOUT'))::integer, (v_to = 'CANCELLED')::integer,
          p_sequence);
  RETURN true;
END
$$;
