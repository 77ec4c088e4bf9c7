-- One plain job for a worker of this process that waits for one: it is claimed by the commit that brings it.
-- in: as jobyard_insert_one; then worker, token, queues (empty: all), how many, lease in ms.
-- out: a row with the job's sequence alone, then as jobyard_exchange; no row when jobyard_insert_one is not enough.
CREATE OR REPLACE FUNCTION {schema}.jobyard_insert_for(
  p_now bigint, p_id text, p_kind text, p_queue text, p_group text, p_priority integer, p_payload bytea,
  p_max_attempts integer, p_timeout double precision, p_backoff bytea,
  p_worker text, p_token text, p_queues text[], p_wanted integer, p_lease bigint
) RETURNS TABLE (
  sequence bigint, id text, kind text, queue text, group_name text, priority integer, attempt integer,
  max_attempts integer, deaths integer, payload bytea, private_payload bytea, timeout_seconds double precision,
  backoff bytea, signal bytea, place integer, now bigint, revision bigint, next_due_at bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_sequence bigint;
BEGIN
  v_sequence := {schema}.jobyard_insert_one(
    p_now, p_id, p_kind, p_queue, p_group, p_priority, p_payload, p_max_attempts, p_timeout, p_backoff);
  IF v_sequence > 0 THEN
    sequence := v_sequence;
    RETURN NEXT;
    RETURN QUERY SELECT * FROM {schema}.jobyard_exchange(
      p_now, p_worker, p_token, p_queues, p_wanted, p_lease, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
      '{}', '{}', '{}', '{}', '{}', NULL, false, NULL);
  END IF;
END
$$;
