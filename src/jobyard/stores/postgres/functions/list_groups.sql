-- The groups of a queue that have jobs, a limit or a pause, with counts as in jobyard_list_queues.
-- in: now (NULL: the server's clock), queue, name after which to start (NULL: from the start; jobs without a group come
--     first), limit, cap. out: name, limit, paused, counts; by name.
-- Nested loops are off, because the planner does not know how many groups have changed.
CREATE OR REPLACE FUNCTION {schema}.jobyard_list_groups(
  p_now bigint, p_queue text, p_after text, p_limit integer, p_cap integer
) RETURNS TABLE (name text, own_limit bigint, paused boolean, waiting bigint, delayed bigint, running bigint)
LANGUAGE plpgsql SET jit = off SET enable_nestloop = off
AS $$
#variable_conflict use_column
DECLARE
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
BEGIN
  RETURN QUERY
  WITH change AS MATERIALIZED (
    SELECT c.name, sum(c.w) AS waiting, sum(c.d) AS delayed, sum(c.r) AS running
    FROM (SELECT * FROM {schema}.jobyard_queue q WHERE q.name = p_queue) k CROSS JOIN LATERAL (
      SELECT i.group_name AS name, i.waiting AS w, i.delayed AS d, i.running AS r FROM {schema}.jobyard_inbox i
      WHERE i.queue = p_queue AND i.xid >= k.inbox_from
      UNION ALL
      (SELECT d.group_name, 1, -1, 0 FROM {schema}.jobyard_delayed d
       WHERE d.queue = p_queue AND (d.run_at, d.sequence) > (k.delayed_from, k.delayed_after) AND d.run_at <= v_now
       ORDER BY d.run_at, d.sequence LIMIT p_cap)) c
    WHERE p_after IS NULL OR c.name > p_after
    GROUP BY c.name)
  (SELECT s.* FROM (
     SELECT g.name, g.own_limit, g.paused, g.waiting + coalesce(c.waiting, 0) AS waiting,
       g.delayed + coalesce(c.delayed, 0) AS delayed, g.running + coalesce(c.running, 0) AS running
     FROM {schema}.jobyard_group g LEFT JOIN change c ON c.name = g.name
     WHERE g.queue = p_queue AND (p_after IS NULL OR g.name > p_after)) s
   WHERE s.waiting <> 0 OR s.delayed <> 0 OR s.running <> 0 OR s.paused OR s.own_limit IS NOT NULL
   ORDER BY s.name LIMIT p_limit)
  UNION ALL
  -- A group whose first job is not folded in yet has no row.
  (SELECT c.name, NULL, false, c.waiting, c.delayed, c.running FROM change c
   WHERE (c.waiting <> 0 OR c.delayed <> 0 OR c.running <> 0)
     AND (SELECT true FROM {schema}.jobyard_group g WHERE g.queue = p_queue AND g.name = c.name) IS NULL
   ORDER BY c.name LIMIT p_limit)
  ORDER BY name LIMIT p_limit;
END
$$;
