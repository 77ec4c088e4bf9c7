-- Take the oldest signal of a name that a job has not taken.
-- Of those that it has taken the last 100 are kept, without their data, to recognise one that is sent again.
-- in: sequence, name. out: its data; NULL: there is none.
CREATE OR REPLACE FUNCTION {schema}.jobyard_take_signal(p_sequence bigint, p_name text) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
  x record;
  h record;
  v_gone bigint;
BEGIN
  SELECT s.taken_to INTO x FROM {schema}.jobyard_scope s
  WHERE s.sequence = p_sequence AND s.scope = 'signal:' || p_name AND s.entries > s.taken FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT e.number, e.data INTO h FROM {schema}.jobyard_history e
  WHERE e.sequence = p_sequence AND e.scope = 'signal:' || p_name AND e.number > x.taken_to ORDER BY e.number LIMIT 1;
  UPDATE {schema}.jobyard_history e SET data = 'null'
  WHERE e.sequence = p_sequence AND e.scope = 'signal:' || p_name AND e.number = h.number;
  DELETE FROM {schema}.jobyard_history e
  WHERE e.sequence = p_sequence AND e.scope = 'signal:' || p_name AND e.number <= (
    SELECT t.number FROM {schema}.jobyard_history t
    WHERE t.sequence = p_sequence AND t.scope = 'signal:' || p_name AND t.number <= h.number
    ORDER BY t.number DESC LIMIT 1 OFFSET 100);
  GET DIAGNOSTICS v_gone = ROW_COUNT;
  UPDATE {schema}.jobyard_scope s
  SET taken = s.taken + 1 - v_gone, taken_to = h.number, entries = s.entries - v_gone
  WHERE s.sequence = p_sequence AND s.scope = 'signal:' || p_name;
  RETURN h.data;
END
$$;
