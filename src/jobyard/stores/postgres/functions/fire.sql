-- Insert a schedule's job and mark its instant as fired, in one step.
-- in: schedule, tick, then as jobyard_insert for one job. out: as jobyard_insert; no row when it had fired already.
CREATE OR REPLACE FUNCTION {schema}.jobyard_fire(
  p_schedule text, p_tick bigint, p_now bigint, p_names text[], p_strict boolean,
  p_id text[], p_kind text[], p_queue text[], p_group text[], p_priority integer[], p_payload bytea[],
  p_max_attempts integer[], p_private bytea[], p_timeout double precision[], p_backoff bytea[], p_delay bigint[],
  p_run_at bigint[], p_unique text[], p_scope smallint[], p_period bigint[], p_tags bytea[],
  p_tag_of integer[], p_tag text[]
) RETURNS TABLE (sequence bigint, holder text) LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO {schema}.jobyard_fired VALUES (p_schedule, p_tick, p_id[1]) ON CONFLICT DO NOTHING;
  IF FOUND THEN
    RETURN QUERY SELECT * FROM {schema}.jobyard_insert(
      p_now, p_names, p_strict, p_id, p_kind, p_queue, p_group, p_priority, p_payload, p_max_attempts, p_private,
      p_timeout, p_backoff, p_delay, p_run_at, p_unique, p_scope, p_period, p_tags, p_tag_of, p_tag);
  END IF;
END
$$;
