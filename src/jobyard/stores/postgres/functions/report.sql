-- Record progress, log lines and a step of a running attempt.
-- in: now (NULL: the server's clock), sequence, token, progress, lines (JSON each), a step: name, whether it runs, JSON.
-- out: whether the token holds.
CREATE OR REPLACE FUNCTION {schema}.jobyard_report(
  p_now bigint, p_sequence bigint, p_token text, p_progress bytea, p_lines bytea[],
  p_step_name text, p_step_runs boolean, p_step bytea
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  kept CONSTANT integer := 1000;
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  v_last integer;
  v_known record;
BEGIN
  PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);  -- see jobyard_hold
  -- Locks the lease until the commit, so that no row is written for a job that is deleted meanwhile.
  PERFORM FROM {schema}.jobyard_lease l WHERE l.sequence = p_sequence AND l.token = p_token FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE {schema}.jobyard_job j SET flags = j.flags | 8 WHERE j.sequence = p_sequence AND j.flags & 8 = 0;
  IF p_progress IS NOT NULL THEN
    INSERT INTO {schema}.jobyard_extra (sequence, what, number, at, data)
    VALUES (p_sequence, 'progress', 0, v_now, p_progress)
    ON CONFLICT (sequence, what, number) DO UPDATE SET at = excluded.at, data = excluded.data;
  END IF;
  IF cardinality(p_lines) > 0 THEN
    SELECT coalesce(max(e.number), 0) INTO v_last FROM {schema}.jobyard_extra e
    WHERE e.sequence = p_sequence AND e.what = 'log';
    INSERT INTO {schema}.jobyard_extra (sequence, what, number, at, data)
    SELECT p_sequence, 'log', v_last + u.o, v_now, u.line FROM unnest(p_lines) WITH ORDINALITY u(line, o);
    DELETE FROM {schema}.jobyard_extra e WHERE e.sequence = p_sequence AND e.what = 'log'
      AND e.number <= v_last + cardinality(p_lines) - kept;
  END IF;
  IF p_step_name IS NOT NULL THEN
    -- A later report of a step replaces the earlier one and keeps its position.
    SELECT e.number, e.at INTO v_known FROM {schema}.jobyard_extra e
    WHERE e.sequence = p_sequence AND e.what = 'step' AND e.name = p_step_name;
    IF FOUND THEN
      UPDATE {schema}.jobyard_extra e SET data = p_step, at = CASE WHEN p_step_runs THEN v_now ELSE e.at END,
        finished_at = CASE WHEN p_step_runs THEN NULL ELSE v_now END
      WHERE e.sequence = p_sequence AND e.what = 'step' AND e.number = v_known.number;
    ELSE
      INSERT INTO {schema}.jobyard_extra (sequence, what, number, name, at, finished_at, data)
      SELECT p_sequence, 'step', coalesce(max(e.number), 0) + 1, p_step_name, v_now,
             CASE WHEN p_step_runs THEN NULL ELSE v_now END, p_step
      FROM {schema}.jobyard_extra e WHERE e.sequence = p_sequence AND e.what = 'step';
    END IF;
  END IF;
  RETURN true;
END
$$;
