-- Prepare a COPY of many jobs: create their queues and draw their sequences.
-- in: now (NULL: the server's clock), queue names, number of jobs.
-- out: now, and the sequences; NULL when one of the queues limits its waiting jobs, so that COPY cannot be used.
CREATE OR REPLACE FUNCTION {schema}.jobyard_begin_bulk(
  p_now bigint, p_names text[], p_many integer, OUT o_now bigint, OUT o_sequences bigint[]
) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);  -- see jobyard_hold
  o_now := {schema}.jobyard_now(p_now);
  INSERT INTO {schema}.jobyard_queue (name) SELECT n FROM unnest(p_names) n
  WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_queue k WHERE k.name = n) ORDER BY n ON CONFLICT DO NOTHING;
  IF EXISTS (SELECT FROM {schema}.jobyard_queue k WHERE k.name = ANY (p_names)
             AND (k.max_waiting IS NOT NULL OR k.max_waiting_per_group IS NOT NULL)) THEN
    RETURN;
  END IF;
  o_sequences := ARRAY(SELECT nextval('{schema}.jobyard_sequence') FROM generate_series(1, p_many));
END
$$;
