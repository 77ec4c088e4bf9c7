-- Insert one plain job, at the lowest cost.
-- in: now (NULL: the server's clock), the job.
-- out: its sequence; 0 when jobyard_insert is needed: the queue is unknown or limited.
-- Raises JYB01 when a job has this id.
CREATE OR REPLACE FUNCTION {schema}.jobyard_insert_one(
  p_now bigint, p_id text, p_kind text, p_queue text, p_group text, p_priority integer, p_payload bytea,
  p_max_attempts integer, p_timeout double precision, p_backoff bytea
) RETURNS bigint LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now CONSTANT bigint := coalesce(p_now, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_sequence bigint;
  v_ord bigint;
BEGIN
  PERFORM FROM {schema}.jobyard_queue k
  WHERE k.name = p_queue AND k.max_waiting IS NULL AND k.max_waiting_per_group IS NULL;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  IF EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.id = p_id) THEN
    RAISE EXCEPTION USING ERRCODE = 'JYB01', MESSAGE = 'duplicate job id',
      DETAIL = json_build_object('job_id', p_id);
  END IF;
  v_sequence := nextval('{schema}.jobyard_sequence');
  v_ord := (-p_priority::bigint << 42) + v_sequence;
  INSERT INTO {schema}.jobyard_job
    (sequence, id, kind, queue, group_name, priority, max_attempts, flags, run_at, created_at, timeout_seconds, payload,
     backoff)
  VALUES (v_sequence, p_id, p_kind, p_queue, p_group, p_priority, p_max_attempts, 0, v_now, v_now, p_timeout, p_payload,
          p_backoff);
  INSERT INTO {schema}.jobyard_ready VALUES (p_queue, p_group, v_ord, 0, 0);
  INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, waiting, ord)
  VALUES (p_queue, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), p_group, v_now, 1, v_ord);
  RETURN v_sequence;
END
$$;
