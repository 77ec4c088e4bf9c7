-- Write entries of histories in the given order; one whose scope and key the job has already is skipped.
-- in: now, and per entry: sequence of its job (NULL: none), scope, key, data.
-- out: per entry its number (NULL: it has no job); skipped: those of these numbers that were not used.
-- The caller holds the jobs, by their queues or leases, and has set bit 64 of their flags.
-- No entry is looked up by its key: while the tables are small, the planner may choose the index by number for that.
CREATE OR REPLACE FUNCTION {schema}.jobyard_write(
  p_now bigint, p_sequence bigint[], p_scope text[], p_key text[], p_data bytea[],
  OUT numbers bigint[], OUT skipped bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
  written bigint[];
BEGIN
  -- Locked in one order, and before numbers are drawn.
  INSERT INTO {schema}.jobyard_scope (sequence, scope)
  SELECT DISTINCT u.s, u.scope COLLATE "C" FROM unnest(p_sequence, p_scope) u(s, scope) WHERE u.s IS NOT NULL
  ORDER BY 1, 2 ON CONFLICT DO NOTHING;
  PERFORM FROM (
    SELECT DISTINCT u.s, u.scope COLLATE "C" AS scope FROM unnest(p_sequence, p_scope) u(s, scope) WHERE u.s IS NOT NULL
    ORDER BY 1, 2) n
  CROSS JOIN LATERAL (SELECT FROM {schema}.jobyard_scope x WHERE x.sequence = n.s AND x.scope = n.scope
                      OFFSET 0 FOR NO KEY UPDATE) x;
  numbers := ARRAY(SELECT CASE WHEN s IS NOT NULL THEN nextval('{schema}.jobyard_entry') END FROM unnest(p_sequence) s);
  WITH written AS (
    INSERT INTO {schema}.jobyard_history AS h (sequence, scope, key, number, at, data)
    SELECT u.s, u.scope, u.key, u.n, p_now, u.data
    FROM unnest(p_sequence, p_scope, p_key, p_data, numbers) u(s, scope, key, data, n) WHERE u.s IS NOT NULL
    ON CONFLICT DO NOTHING RETURNING h.sequence, h.scope, h.number),
  counted AS (
    UPDATE {schema}.jobyard_scope x SET entries = x.entries + w.n
    FROM (SELECT y.sequence, y.scope, count(*) AS n FROM written y GROUP BY y.sequence, y.scope) w
    WHERE x.sequence = w.sequence AND x.scope = w.scope)
  SELECT array_agg(w.number) INTO written FROM written w;
  skipped := ARRAY(SELECT n FROM unnest(numbers) n WHERE n IS NOT NULL EXCEPT SELECT unnest(written));
END
$$;
