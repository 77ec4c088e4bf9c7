-- Disarm a schedule and delete its ticks.
-- in: schedule, latest revision to disarm (NULL: any). out: whether it was armed with such a revision.
CREATE OR REPLACE FUNCTION {schema}.jobyard_disarm(p_schedule text, p_revision bigint) RETURNS boolean LANGUAGE plpgsql
AS $$
BEGIN
  DELETE FROM {schema}.jobyard_armed a
  WHERE a.schedule = p_schedule AND (p_revision IS NULL OR a.revision <= p_revision);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  -- A separate statement, so that it sees ticks that were decided while the first waited for the lock.
  DELETE FROM {schema}.jobyard_tick t WHERE t.schedule = p_schedule;
  RETURN true;
END
$$;
