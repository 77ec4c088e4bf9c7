-- Pause or resume a group, or set its own limit.
-- in: now (NULL: the server's clock), queue, group, paused (NULL: unchanged),
--     has_limit: whether the limit changes, limit.
CREATE OR REPLACE FUNCTION {schema}.jobyard_set_group(
  p_now bigint, p_queue text, p_group text, p_paused boolean, p_has_limit boolean, p_limit bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  g record;
BEGIN
  INSERT INTO {schema}.jobyard_queue (name) VALUES (p_queue) ON CONFLICT DO NOTHING;
  PERFORM {schema}.jobyard_hold(ARRAY[p_queue], {schema}.jobyard_now(p_now));
  INSERT INTO {schema}.jobyard_group AS c (queue, name, paused, own_limit, head)
  VALUES (p_queue, p_group, coalesce(p_paused, false), CASE WHEN p_has_limit THEN p_limit END, 9223372036854775807)
  ON CONFLICT (queue, name) DO UPDATE SET
    paused = coalesce(p_paused, c.paused), own_limit = CASE WHEN p_has_limit THEN p_limit ELSE c.own_limit END;
  UPDATE {schema}.jobyard_group c SET open = c.waiting > 0 AND NOT c.paused AND c.running <
    coalesce(c.own_limit, CASE WHEN c.name <> '' THEN k.max_per_group END, 9007199254740992)
  FROM {schema}.jobyard_queue k WHERE k.name = p_queue AND c.queue = p_queue AND c.name = p_group
  RETURNING c.turn, c.open INTO g;
  IF g.open THEN
    UPDATE {schema}.jobyard_queue k SET line_from = least(k.line_from, g.turn) WHERE k.name = p_queue;
  END IF;
  PERFORM nextval('{schema}.jobyard_revision');
END
$$;
