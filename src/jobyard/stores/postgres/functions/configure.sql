-- Create the queue or replace its settings.
-- in: now (NULL: the server's clock), name, the settings in the order of `QueueSettings`.
CREATE OR REPLACE FUNCTION {schema}.jobyard_configure(
  p_now bigint, p_queue text, p_max_running bigint, p_max_per_group bigint, p_max_waiting bigint,
  p_max_waiting_per_group bigint, p_keep_completed bigint, p_keep_failed bigint, p_keep_completed_seconds double precision,
  p_keep_failed_seconds double precision, p_keep_at_most bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  lowest bigint;
  before bigint;
BEGIN
  INSERT INTO {schema}.jobyard_queue (name) VALUES (p_queue) ON CONFLICT DO NOTHING;
  PERFORM {schema}.jobyard_hold(ARRAY[p_queue], {schema}.jobyard_now(p_now));
  SELECT k.max_per_group INTO before FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
  IF before IS DISTINCT FROM p_max_per_group THEN
    -- Which groups have room changes with the limit.
    WITH changed AS (
      UPDATE {schema}.jobyard_group g SET open = NOT g.open WHERE g.queue = p_queue AND g.open <>
        (g.waiting > 0 AND NOT g.paused AND g.running <
          coalesce(g.own_limit, CASE WHEN g.name <> '' THEN p_max_per_group END, 9007199254740992))
      RETURNING g.turn, g.open)
    SELECT min(c.turn) FILTER (WHERE c.open) INTO lowest FROM changed c;
  END IF;
  UPDATE {schema}.jobyard_queue k SET
    max_running = p_max_running, max_per_group = p_max_per_group, max_waiting = p_max_waiting,
    max_waiting_per_group = p_max_waiting_per_group, keep_completed = p_keep_completed, keep_failed = p_keep_failed,
    keep_completed_seconds = p_keep_completed_seconds, keep_failed_seconds = p_keep_failed_seconds,
    keep_at_most = p_keep_at_most, line_from = least(k.line_from, lowest)
  WHERE k.name = p_queue;
  PERFORM nextval('{schema}.jobyard_revision');
END
$$;
