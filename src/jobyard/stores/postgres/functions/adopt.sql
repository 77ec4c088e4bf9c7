-- Enter a job that already runs outside, beyond any limit and even if its unique key is held.
-- in: now (NULL: the server's clock), the job, worker, token, external id. out: its sequence.
-- Raises JYB01 when a job has this id.
CREATE OR REPLACE FUNCTION {schema}.jobyard_adopt(
  p_now bigint, p_id text, p_kind text, p_queue text, p_group text, p_priority integer, p_payload bytea,
  p_private bytea, p_max_attempts integer, p_timeout double precision, p_backoff bytea, p_unique text, p_scope smallint,
  p_period bigint, p_tags bytea, p_tag text[], p_worker text, p_token text, p_external text,
  p_parent text DEFAULT NULL, p_workflow boolean DEFAULT false
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  forever CONSTANT bigint := 253402300799999;
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  v_sequence bigint;
  v_flags CONSTANT integer := (coalesce(p_scope, 9) = 0)::integer + 2 * (p_private IS NOT NULL)::integer
    + 4 * (p_tags IS NOT NULL)::integer + 16 * (p_parent IS NOT NULL)::integer + 32 * p_workflow::integer;
BEGIN
  IF EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.id = p_id) THEN
    RAISE EXCEPTION USING ERRCODE = 'JYB01', MESSAGE = 'duplicate job id',
      DETAIL = json_build_object('job_id', p_id);
  END IF;
  v_sequence := nextval('{schema}.jobyard_sequence');
  INSERT INTO {schema}.jobyard_queue (name) SELECT p_queue
  WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_queue k WHERE k.name = p_queue) ON CONFLICT DO NOTHING;
  IF p_unique IS NOT NULL THEN
    PERFORM {schema}.jobyard_take_key(v_now, p_queue, p_unique, p_id, CASE p_scope
      WHEN 0 THEN NULL WHEN 1 THEN least(forever, v_now + p_period) ELSE forever END);
  END IF;
  INSERT INTO {schema}.jobyard_job
    (sequence, id, kind, queue, group_name, priority, max_attempts, flags, run_at, created_at, timeout_seconds, payload,
     private_payload, backoff, unique_key, tags, parent)
  VALUES (v_sequence, p_id, p_kind, p_queue, p_group, p_priority, p_max_attempts, v_flags, v_now, v_now, p_timeout,
          p_payload, p_private, p_backoff, p_unique, p_tags, p_parent);
  INSERT INTO {schema}.jobyard_tag SELECT t, v_sequence FROM unnest(p_tag) t ON CONFLICT DO NOTHING;
  INSERT INTO {schema}.jobyard_lease
    (sequence, expires_at, started_at, attempt, flags, token, worker, queue, group_name, external_id)
  VALUES (v_sequence, forever, v_now, 1, v_flags, p_token, p_worker, p_queue, p_group, p_external);
  INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, running)
  VALUES (p_queue, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), p_group, v_now, 1);
  RETURN v_sequence;
END
$$;
