-- No more ticks of the schedule are decided, and those that were are forgotten.
-- in: schedule, the latest revision that may be ended (NULL: any). out: whether it was armed, and no later.
CREATE OR REPLACE FUNCTION {schema}.jobyard_disarm(p_schedule text, p_revision bigint) RETURNS boolean LANGUAGE plpgsql
AS $$
BEGIN
  DELETE FROM {schema}.jobyard_armed a
  WHERE a.schedule = p_schedule AND (p_revision IS NULL OR a.revision <= p_revision);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  -- In a statement of its own: it sees what was decided while we waited.
  DELETE FROM {schema}.jobyard_tick t WHERE t.schedule = p_schedule;
  RETURN true;
END
$$;
