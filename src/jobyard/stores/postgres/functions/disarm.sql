-- No more ticks of the schedule are decided, and those that were are forgotten.
-- in: schedule. out: whether it was armed.
CREATE OR REPLACE FUNCTION {schema}.jobyard_disarm(p_schedule text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  was_armed boolean;
BEGIN
  DELETE FROM {schema}.jobyard_armed a WHERE a.schedule = p_schedule;
  was_armed := FOUND;
  -- In a statement of its own: it sees what was decided while we waited.
  DELETE FROM {schema}.jobyard_tick t WHERE t.schedule = p_schedule;
  RETURN was_armed;
END
$$;
